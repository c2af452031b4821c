from datetime import UTC, datetime, timedelta

from sqlalchemy import update

from signoff.contracts.person import Person
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.people.login import id_from_login
from signoff.people.vouched_directory import VouchedPerson, vouch
from signoff.store.browser_sessions import StoredSessions
from signoff.store.claim_conditions import add_restoration
from signoff.store.store import Store
from signoff.store.tables import PEOPLE
from signoff.store.vouched_people import VouchedPeople, vouched_writer

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
SIGNER = Signer(PrivateKeys(keys=(new_key(NOW),)))


def seen(subject: str = "7", *roles: str, at: datetime = NOW, tenant: str = "main") -> VouchedPerson:
    login = f"https://login.example.com#{subject}"
    person = Person(id=id_from_login(login), tenant=tenant, roles=roles, identities={"oidc": (login,)})
    return vouch(SIGNER, person, names=(), now=at, lifetime=7 * DAY)


async def test_last_sign_in_replaces_earlier_ones(store: Store) -> None:
    first, later, other = seen("7", "finance"), seen("7", at=NOW + DAY), seen("8", "finance")
    elsewhere = seen("7", "finance", tenant="acme")
    for row in (first, other, elsewhere, later):
        await store.run(vouched_writer(row))
    people = VouchedPeople(store)
    assert await people.find("main", [first.person.id, "ana"]) == [later]
    assert await people.find("acme", [first.person.id]) == [elsewhere]
    assert await people.find("main", []) == []
    assert sorted(each.seen_at for each in await people.all()) == [NOW, NOW, NOW + DAY]


async def test_expired_sign_ins_are_removed_at_the_next_sign_in(store: Store) -> None:
    old, new = seen("7"), seen("8", at=NOW + 7 * DAY)
    await store.run(vouched_writer(old))
    assert await VouchedPeople(store).find("main", [old.person.id]) == [old]
    await store.run(vouched_writer(new))
    assert await VouchedPeople(store).all() == [new]


async def test_ended_person_is_signed_out_until_the_next_sign_in(store: Store) -> None:
    row, people = seen("7"), VouchedPeople(store)
    own = row.person.id
    await store.run(vouched_writer(row))
    for cookie, person in (("a" * 64, own), ("b" * 64, "ana")):
        await StoredSessions(store).open(cookie, tenant="main", person=person, assurance="session", now=NOW)
    entries: list[str] = []
    for _ in range(2):
        await people.end("main", own, by="ada", now=NOW, also=lambda connection: entries.append("ended"))
    assert (entries, await people.find("main", [own]), await people.all()) == (["ended"], [], [])
    assert await StoredSessions(store).find("a" * 64, NOW) is None
    assert await StoredSessions(store).find("b" * 64, NOW) is not None
    assert not await people.end("acme", own, by="ada", now=NOW)
    await store.run(vouched_writer(seen("7", at=NOW + DAY)))
    assert len(await people.find("main", [own])) == 1


async def test_row_not_written_by_the_gateway_is_ignored(store: Store) -> None:
    row, people = seen("7", "finance"), VouchedPeople(store)
    await store.run(vouched_writer(row))
    await store.run(lambda connection: connection.execute(update(PEOPLE).values(person="ana")))
    assert await people.find("main", ["ana", row.person.id]) == []
    for body in ("", "{}", "no JSON", '{"person": 5}'):
        changed = update(PEOPLE).values(person=row.person.id, body=body)
        await store.run(lambda connection, changed=changed: connection.execute(changed))
        assert await people.all() == []


async def test_restoration_requires_all_people_to_sign_in_again(store: Store) -> None:
    row, people, sessions = seen("7", "finance"), VouchedPeople(store), StoredSessions(store)
    await store.run(vouched_writer(row))
    for cookie, tenant in (("a" * 64, "main"), ("b" * 64, "acme")):
        await sessions.open(cookie, tenant=tenant, person="ana", assurance="session", now=NOW)
    done = await store.run(lambda connection: add_restoration(connection, by="an operator"))
    assert (done.logins, done.browsers) == ({"main": 1}, {"main": 1, "acme": 1})
    assert await people.all() == []
    assert [await sessions.find(each * 64, NOW) for each in "ab"] == [None, None]
    await store.run(vouched_writer(seen("7", at=NOW + DAY)))
    assert len(await people.all()) == 1
