import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from some import some
from sqlalchemy import update

from signoff.contracts.call import REQUIRES_APPROVAL
from signoff.contracts.decision import GrantRequest
from signoff.contracts.errors import NotFound
from signoff.contracts.grant import Grant, GrantScope
from signoff.formats.replace import replace
from signoff.store.claim_conditions import add_restoration
from signoff.store.freezes import Freezes
from signoff.store.grants import Grants, write_grant
from signoff.store.store import Store, open_store
from signoff.store.tables import GRANTS
from signoff.store.tickets import Claim

WHO = {"workflow": "turn/main/s/t", "call": "c1.1", "tool": "pay"}


def of_call(number: int) -> dict[str, str]:
    return WHO | {"call": f"c{number + 1}.1"}


LIKE = GrantScope(
    tenant="main",
    tool="pay",
    definition="d" * 64,
    where="args.amount < 5.0",
    rule=REQUIRES_APPROVAL,
    policy_hash="p" * 64,
)


async def written(store: Store, grant_id: str = "g1", **fields: Any) -> Grant:
    given: dict[str, Any] = {"people": ("ana",), "approval_id": "main.s.t.c1.1", "requester": "rui"} | fields
    verdict, like = given.pop("verdict", "approved"), given.pop("like", LIKE)
    wish = GrantRequest(seconds=given.pop("seconds", 60), uses=given.pop("uses", 3))
    await store.run(lambda connection: write_grant(connection, grant_id, verdict, like, wish, **given))
    return some(await Grants(store).read(grant_id))


async def test_grant_is_read_back_as_written(store: Store) -> None:
    like = replace(LIKE, session="s", where="", exact="e" * 64)
    grant = await written(store, like=like, people=("ana", "bo"), reason="yearly", seconds=60, uses=3)
    assert (grant.like, grant.people, grant.reason, grant.uses, grant.uses_left) == (
        like,
        ("ana", "bo"),
        "yearly",
        3,
        3,
    )
    assert grant.expires_at - grant.created_at == timedelta(seconds=60)
    assert await Grants(store).list_usable("main", "s", "pay") == [grant]
    assert await Grants(store).read("g1") == grant
    for tenant, session, tool in (("other", "s", "pay"), ("main", "other", "pay"), ("main", "s", "book")):
        assert await Grants(store).list_usable(tenant, session, tool) == []


async def test_grant_is_written_once(store: Store) -> None:
    first = await written(store, uses=2)
    await store.claim("k", **WHO, grant="g1")
    await Grants(store).revoke("g1", "main", by="bo")
    again = await written(store, uses=900, people=("eve",))
    assert (again.people, again.uses, again.uses_left, again.revoked_by) == (first.people, 2, 1, "bo")


async def test_grant_of_an_old_answer_expires_earlier(store: Store) -> None:
    hour = timedelta(hours=1)
    early = await written(store, "early", seconds=7_200, since=datetime.now(UTC) - hour)
    late = await written(store, "late", seconds=7_200, since=datetime.now(UTC) + hour)
    assert abs(early.expires_at - early.created_at - hour) < timedelta(seconds=30)
    assert late.expires_at - late.created_at == 2 * hour


async def test_denial_grants_are_tried_first(store: Store) -> None:
    await written(store, "yes")
    await written(store, "no", verdict="denied")
    assert [grant and grant.id for grant in await Grants(store).list_usable("main", "s", "pay")] == ["no", "yes"]


@pytest.mark.parametrize("odd", ["auto_approve_if", '{"kind": "none"}', "[]"])
async def test_malformed_grant_row_does_not_affect_others(store: Store, odd: str) -> None:
    # It is told apart where grants are tried, and left out where they are listed. Seen to raise for every call of the
    # tool, and for the list of the tenant.
    grant = await written(store, "g1")
    await written(store, "g0")
    change = update(GRANTS).where(GRANTS.c.id == "g0").values(rule=odd)
    await store.run(lambda connection: connection.execute(change).close())
    grants = Grants(store)
    found = await grants.list_usable("main", "s", "pay")
    assert (len(found), set(found)) == (2, {grant, None})
    assert await grants.all("main") == [grant]
    assert await grants.read("g0") is None
    with pytest.raises(NotFound):
        await grants.revoke("g0", "main", by="ana")


async def test_claim_spends_one_use_of_a_grant(store: Store) -> None:
    await written(store, uses=2)
    kinds = [(await store.claim(f"k{number}", **of_call(number), grant="g1")).kind for number in range(3)]
    assert kinds == ["fresh", "fresh", "ungranted"]
    assert await store.read_ticket("k2") is None
    assert await Grants(store).list_usable("main", "s", "pay") == []
    assert [grant.uses_left for grant in await Grants(store).all("main", every=True)] == [0]


async def test_existing_ticket_spends_no_second_use(store: Store) -> None:
    await written(store, uses=1)
    assert (await store.claim("k", **WHO, grant="g1")).kind == "fresh"
    assert (await store.claim("k", **WHO, grant="g1")).kind == "open"
    assert await store.claim("other", **of_call(2), grant="g1") == Claim(kind="ungranted")


@pytest.mark.parametrize("uses", [1, 3])
async def test_concurrent_turns_never_share_the_last_grant_use(store: Store, store_url: str, uses: int) -> None:
    await written(store, uses=uses)
    async with open_store(store_url) as second, open_store(store_url) as third:
        stores = (store, second, third)
        claims = await asyncio.gather(
            *(stores[number % 3].claim(f"k{number}", **of_call(number), grant="g1") for number in range(50))
        )
    assert Counter(claim.kind for claim in claims) == {"fresh": uses, "ungranted": 50 - uses}
    found = some(await Grants(store).read("g1"))
    assert found.uses_left == 0
    tickets = [await store.read_ticket(f"k{number}") for number in range(50)]
    assert sum(ticket is not None for ticket in tickets) == uses


async def test_call_denied_by_several_workers_spends_one_use(store: Store, store_url: str) -> None:
    await written(store, verdict="denied", uses=2)
    async with open_store(store_url) as second:
        grants = (Grants(store), Grants(second))
        assert all(await asyncio.gather(*(grants[number % 2].use("g1", "call") for number in range(10))))
    found = some(await Grants(store).read("g1"))
    assert found.uses_left == 1
    assert (await grants[0].use("g1", "second"), await grants[0].use("g1", "third")) == (True, False)
    assert await grants[0].use("g1", "call") is True


async def test_revoked_grant_is_not_spent(store: Store) -> None:
    await written(store)
    gone = await Grants(store).revoke("g1", "main", by="bo")
    assert gone.revoked_by == "bo"
    assert await Grants(store).revoke("g1", "main", by="eve") == gone
    assert await store.claim("k", **WHO, grant="g1") == Claim(kind="ungranted")
    assert await Grants(store).all("main") == []
    for name, tenant in (("g2", "main"), ("g1", "other")):
        with pytest.raises(NotFound, match="grants list"):
            await Grants(store).revoke(name, tenant, by="bo")


async def test_grant_expires_by_the_clock_of_the_store(store: Store) -> None:
    await written(store)
    await store.run(lambda connection: connection.execute(update(GRANTS).values(expires_at=1)))
    assert await Grants(store).list_usable("main", "s", "pay") == []
    assert await store.claim("k", **WHO, grant="g1") == Claim(kind="ungranted")


async def test_freeze_spends_no_grant(store: Store) -> None:
    await written(store, uses=1)
    await Freezes(store).freeze("main", reason="r", by="ana")
    assert (await store.claim("k", **WHO, grant="g1")).kind == "frozen"
    await Freezes(store).unfreeze("main")
    assert (await store.claim("k", **WHO, grant="g1")).kind == "fresh"


async def test_unknown_grant_permits_nothing(store: Store) -> None:
    assert await store.claim("k", **WHO, grant="nobody") == Claim(kind="ungranted")
    assert await Grants(store).read("nobody") is None


async def test_restored_store_revokes_all_approval_grants(store: Store) -> None:
    await written(store, "g1", uses=1)
    await written(store, "g2", verdict="denied")
    await written(store, "g3", like=replace(LIKE, tenant="acme"))
    done = await store.run(lambda connection: add_restoration(connection, by="an operator"))
    assert done.grants == {"main": 1, "acme": 1}
    began = done.at + timedelta(seconds=1)
    claimed = await store.claim("k", **WHO, grant="g1", begun=began)
    assert claimed.kind == "ungranted"
    assert [each.id for each in await Grants(store).list_usable("main", "s", "pay") if each] == ["g2"]
    taken = some(await Grants(store).read("g3"))
    assert taken.revoked_by == "an operator"
    again = await store.run(lambda connection: add_restoration(connection, by="an operator"))
    assert not again.grants
