import asyncio
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import update
from tables import table

from signoff.contracts.decision import Passkey
from signoff.store.questions.passkeys import (
    CHALLENGE_SECONDS,
    OPEN_CHALLENGES,
    AddProblem,
    Passkeys,
    raise_counter,
    use_nonce,
)
from signoff.store.store import Store
from signoff.store.tables import PASSKEY_CHALLENGES

NOW: Final = datetime(2026, 3, 1, tzinfo=UTC)


def passkey(credential: str = "one", person: str = "ana") -> Passkey:
    return Passkey(
        credential=credential,
        tenant="main",
        person=person,
        public_key="key",
        rp_id="localhost",
        origin="http://localhost",
        added_at=NOW,
        added_by=person,
    )


async def add(
    store: Store, new: Passkey, counter: int = 0, nonce: str = "", by: tuple[Passkey, int] | None = None
) -> AddProblem:
    passkeys = Passkeys(store)
    nonce = nonce or await passkeys.make_nonce(new.tenant, new.person)
    return await passkeys.add(new, counter, nonce, by=by, also=lambda connection: None)


async def uses(store: Store, nonce: str, person: str = "ana", tenant: str = "main") -> bool:
    return await store.run(lambda connection: use_nonce(connection, nonce, tenant, person))


async def counts(store: Store, counter: int) -> bool:
    return await store.run(lambda connection: raise_counter(connection, passkey(), counter))


async def test_challenge_is_used_once_and_only_by_its_person(store: Store) -> None:
    nonce = await Passkeys(store).make_nonce("main", "ana")
    assert not await uses(store, nonce, person="bo")
    assert not await uses(store, nonce, tenant="acme")
    assert [await uses(store, nonce) for _ in range(2)] == [True, False]


async def test_expired_challenge_is_refused(store: Store) -> None:
    nonce = await Passkeys(store).make_nonce("main", "ana")
    earlier = PASSKEY_CHALLENGES.c.made_at - CHALLENGE_SECONDS * 1000
    await store.run(lambda connection: connection.execute(update(PASSKEY_CHALLENGES).values(made_at=earlier)))
    assert not await uses(store, nonce)


async def test_one_challenge_too_many_ends_the_persons_others(store: Store) -> None:
    passkeys = Passkeys(store)
    other = await passkeys.make_nonce("main", "bo")
    nonces = [await passkeys.make_nonce("main", "ana") for _ in range(OPEN_CHALLENGES + 1)]
    assert [await uses(store, each) for each in nonces] == [False] * OPEN_CHALLENGES + [True]
    assert await uses(store, other, person="bo")


@table(
    ("first", "counters", "grown"),
    (0, (0, 0), [True, True]),
    (0, (1, 1, 2), [True, False, True]),
    (5, (5, 4, 0, 6), [False, False, False, True]),
    (0, (3, 0), [True, False]),
)
async def test_counter_must_grow_unless_it_was_always_zero(
    store: Store, first: int, counters: tuple[int, ...], grown: list[bool]
) -> None:
    assert await add(store, passkey(), first) == ""
    assert [await counts(store, each) for each in counters] == grown


async def test_unknown_passkey_has_no_counter(store: Store) -> None:
    assert not await counts(store, 1)


async def test_further_passkey_is_added_only_by_an_earlier_one(store: Store) -> None:
    assert await add(store, passkey(), by=(passkey("none"), 1)) == "old"
    assert await add(store, passkey(), 4) == ""
    assert await add(store, passkey("two")) == "old"
    assert await add(store, passkey("two"), by=(passkey(), 4)) == "cloned"
    assert await add(store, passkey("one"), by=(passkey(), 5)) == "known"
    assert await add(store, passkey("two"), nonce="unknown", by=(passkey(), 6)) == "used"
    assert await add(store, passkey("two"), by=(passkey(), 6)) == ""
    found = await Passkeys(store).list_of("main", "ana")
    assert [each.passkey.credential for each in found] == ["one", "two"]
    assert await Passkeys(store).list_of("main", "bo") == []


async def test_two_first_passkeys_at_once_add_only_one(store: Store) -> None:
    problems = await asyncio.gather(*(add(store, passkey(name)) for name in ("one", "two", "three")))
    assert sorted(problems) == ["", "old", "old"]
