import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert, select, update

from signoff.contracts.call import REQUIRES_APPROVAL, CallCode, CallOutcome
from signoff.contracts.decision import GrantRequest
from signoff.contracts.grant import GrantScope
from signoff.contracts.usage import LimitedUse, UsageLimit
from signoff.store.claim_conditions import SWEPT
from signoff.store.grants import Grants, write_grant
from signoff.store.limits.usage_counts import UsageCounts
from signoff.store.store import Store
from signoff.store.tables import USES, StoreClock
from signoff.store.tickets import Claim

DAY = 86_400.0


def a_use(number: int = 1, limit: UsageLimit | None = None, **fields: Any) -> LimitedUse:
    given = {"tenant": "main", "tool": "pay", "person": "ana", "session": "s", "turn": "t"} | fields
    return LimitedUse(limit or UsageLimit(1, "user", DAY), call=f"c1.{number}", **given)


async def claim(store: Store, use: LimitedUse, key: str = "", **fields: Any) -> Claim:
    name = key or f"{use.tenant}-{use.session}-{use.turn}-{use.call}"
    return await store.claim(name, workflow="turn/main/s/t", call=use.call, tool=use.tool, use=use, **fields)


def ended(code: CallCode, gate: str = "execute") -> CallOutcome:
    return CallOutcome(call="c1.1", tool="pay", code=code, gate=gate)


async def test_use_is_taken_with_a_ticket_until_the_limit(store: Store) -> None:
    limit = UsageLimit(2, "user", DAY)
    assert [(await claim(store, a_use(number, limit))).kind for number in (1, 2)] == ["fresh", "fresh"]
    refused = await claim(store, a_use(3, limit))
    assert (refused.kind, await store.read_ticket("main-s-t-c1.3")) == ("used_up", None)
    assert refused.again is not None
    assert abs(refused.again - datetime.now(UTC) - timedelta(days=1)) < timedelta(seconds=30)
    assert await UsageCounts(store).check([a_use(3, limit), a_use(3, limit, person="bo")]) == [refused.again, None]


@pytest.mark.parametrize(
    ("per", "others"),
    [
        ("user", [{"person": "bo"}, {"tenant": "other"}, {"tool": "wire"}]),
        ("session", [{"session": "s2"}, {"tenant": "other"}, {"tool": "wire"}]),
        ("tenant", [{"tenant": "other"}, {"tool": "wire"}]),
    ],
)
async def test_uses_are_counted_per_person_session_or_turn(
    store: Store, per: Any, others: list[dict[str, str]]
) -> None:
    limit = UsageLimit(1, per, DAY)
    await claim(store, a_use(1, limit))
    everything = {"person": "bo", "session": "s2", "turn": "t2"}
    same = {name: value for name, value in everything.items() if name != {"user": "person"}.get(per, per)}
    assert (await claim(store, a_use(2, limit, **same))).kind == "used_up"
    for number, other in enumerate(others, 3):
        assert (await claim(store, a_use(number, limit, **other))).kind == "fresh"


async def test_use_counts_for_one_period(store: Store) -> None:
    await claim(store, a_use(1))

    async def age(seconds: float) -> None:
        back = update(USES).values(used_at=USES.c.used_at - int(seconds * 1000))
        await store.run(lambda connection: connection.execute(back).close())

    await age(DAY - 60)
    (again,) = await UsageCounts(store).check([a_use(2)])
    assert again is not None
    assert timedelta(0) < again - datetime.now(UTC) < timedelta(seconds=61)
    await age(61)
    assert await UsageCounts(store).check([a_use(2)]) == [None]
    assert (await claim(store, a_use(2))).kind == "fresh"


async def test_uses_outside_every_limit_are_removed_with_the_next_one(store: Store) -> None:
    async def kept() -> list[str]:
        return await store.run(lambda connection: sorted(connection.scalars(select(USES.c.key))))

    def aged(key: str, days: float, **fields: str) -> dict[str, Any]:
        values = a_use()._asdict() | {"key": key, "used_at": StoreClock() - int(days * DAY * 1000)} | fields
        del values["limit"]
        return values

    rows = [aged(f"old-{number:03}", 367 + number) for number in range(SWEPT + 2)]
    rows += [aged("young", 365.9), aged("other", 400, tenant="other"), aged("wire", 400, tool="wire")]
    await store.run(lambda connection: [connection.execute(insert(USES).values(row)).close() for row in rows])
    limit = UsageLimit(2, "tenant", 366 * DAY)
    assert (await claim(store, a_use(1, limit), "one")).kind == "fresh"
    assert await kept() == ["old-000", "old-001", "one", "other", "wire", "young"]
    assert (await claim(store, a_use(2, limit), "two")).kind == "used_up"
    assert "old-000" in await kept()
    assert (await claim(store, a_use(2, UsageLimit(3, "tenant", 366 * DAY)), "two")).kind == "fresh"
    assert await kept() == ["one", "other", "two", "wire", "young"]


async def test_ticket_takes_one_use_however_often_it_is_claimed(store: Store) -> None:
    limit = UsageLimit(2, "user", DAY)
    kinds = [(await claim(store, a_use(1, limit))).kind for _ in range(3)]
    await store.record("main-s-t-c1.1", ended("ok"))
    assert [*kinds, (await claim(store, a_use(1, limit))).kind] == ["fresh", "open", "open", "done"]
    assert (await claim(store, a_use(2, limit))).kind == "fresh"
    assert await UsageCounts(store).check([a_use(1, limit)]) == [None]
    assert await UsageCounts(store).check([a_use(3, limit), a_use(1, limit, turn="t2")]) != [None, None]


@pytest.mark.parametrize(("code", "left"), [("ok", False), ("in_doubt", False), ("execution_failed", True)])
async def test_failure_returns_the_use(store: Store, code: CallCode, left: bool) -> None:
    await claim(store, a_use(1))
    await store.record("main-s-t-c1.1", ended(code))
    assert ((await claim(store, a_use(2))).kind == "fresh") is left


@pytest.mark.parametrize("gate", ["output", "update", "distribute"])
async def test_failure_after_the_effect_keeps_the_use(store: Store, gate: str) -> None:
    await claim(store, a_use(1))
    await store.record("main-s-t-c1.1", ended("execution_failed", gate))
    assert (await claim(store, a_use(2))).kind == "used_up"


async def test_call_that_runs_again_has_one_use(store: Store) -> None:
    assert [(await claim(store, a_use(1), key)).kind for key in ("d", "d/2", "d/3")] == ["fresh"] * 3
    assert (await claim(store, a_use(2))).kind == "used_up"
    await store.record("d/3", ended("execution_failed"))
    assert await UsageCounts(store).check([a_use(2)]) == [None]
    await store.record("d", ended("in_doubt"))
    assert await UsageCounts(store).check([a_use(2)]) == [None]
    await store.record("d", ended("ok"))
    assert await UsageCounts(store).check([a_use(2)]) != [None]


async def test_finished_earlier_ticket_keeps_its_use(store: Store) -> None:
    await claim(store, a_use(1), "d")
    await store.record("d", ended("ok"))
    assert (await claim(store, a_use(1), "d/2")).kind == "used_up"


async def test_voided_ticket_returns_its_use_until_an_outcome_arrives(store: Store) -> None:
    await claim(store, a_use(1))
    await store.void_claimed("main-s-t-c1.1")
    assert await UsageCounts(store).check([a_use(2)]) == [None]
    await store.record("main-s-t-c1.1", ended("ok"))
    assert await UsageCounts(store).check([a_use(2)]) != [None]


async def test_unknown_outcome_that_becomes_a_failure_returns_the_use(store: Store) -> None:
    await claim(store, a_use(1))
    await store.record("main-s-t-c1.1", ended("in_doubt"))
    await store.record("main-s-t-c1.1", ended("execution_failed"))
    assert await UsageCounts(store).check([a_use(2)]) == [None]


async def test_rejected_claim_takes_no_use(store: Store) -> None:
    def refuse(connection: Any) -> None:
        raise ValueError("no")

    with pytest.raises(Exception, match="did not answer"):
        await claim(store, a_use(1), also=refuse)
    assert (await claim(store, a_use(1), grant="none")).kind == "ungranted"
    assert await UsageCounts(store).check([a_use(1)]) == [None]
    like = GrantScope(tenant="main", tool="pay", definition="d", where="true", rule=REQUIRES_APPROVAL, policy_hash="p")
    wish = GrantRequest(seconds=60, uses=3)
    whose: dict[str, Any] = {"people": ("ana",), "approval_id": "a", "requester": "rui"}
    await store.run(lambda connection: write_grant(connection, "g", "approved", like, wish, **whose))
    await claim(store, a_use(2))
    assert (await claim(store, a_use(3), grant="g")).kind == "used_up"
    grant = await Grants(store).read("g")
    assert grant is not None
    assert grant.uses_left == 3


@pytest.mark.row("F18")
async def test_concurrent_turns_never_share_the_last_use(store_url: str) -> None:
    limit = UsageLimit(7, "tenant", DAY)
    stores = [await Store.open(store_url) for _ in range(4)]
    uses = [a_use(number, limit, turn=f"t{number}") for number in range(40)]
    found = await asyncio.gather(*(claim(stores[at % 4], use) for at, use in enumerate(uses)))
    assert Counter(each.kind for each in found) == {"fresh": 7, "used_up": 33}
    for store in stores:
        await store.close()
