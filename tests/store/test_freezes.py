import asyncio
import functools
import threading

import pytest
from sqlalchemy import Connection, select, text

from signoff.contracts.call import CallOutcome
from signoff.contracts.grant import Freeze
from signoff.store.claim_conditions import freeze_of
from signoff.store.freezes import Freezes
from signoff.store.store import Store, open_store
from signoff.store.tables import TICKETS
from signoff.store.tickets import Claim, ticket_key

KEY = "b" * 64
MAIN = {"workflow": "turn/main/s/t", "call": "c1.1", "tool": "pay"}
OTHER = {"workflow": "turn/other/s/t", "call": "c1.1", "tool": "pay"}
PAID = CallOutcome(call="c1.1", tool="pay", code="ok")


def tickets(connection: Connection, keys: list[str]) -> set[str]:
    return set(connection.scalars(select(TICKETS.c.key).where(TICKETS.c.key.in_(keys))))


async def test_frozen_tenant_gets_no_ticket_and_others_do(store: Store) -> None:
    await Freezes(store).freeze("main", reason="stolen laptop", by="ana")
    assert await store.claim(KEY, **MAIN) == Claim(kind="frozen", frozen="stolen laptop")
    assert await store.read_ticket(KEY) is None
    assert await store.claim(KEY, **OTHER) == Claim(kind="fresh")


async def test_tickets_from_before_a_freeze_are_still_reported(store: Store) -> None:
    await store.claim(KEY, **MAIN)
    await store.claim(ticket_key(KEY, 2), **MAIN)
    await store.record(KEY, PAID)
    await Freezes(store).freeze("main", reason="audit", by="ana")
    assert await store.claim(KEY, **MAIN) == Claim(kind="done", outcome=PAID, frozen="audit")
    assert await store.claim(ticket_key(KEY, 2), **MAIN) == Claim(kind="open", frozen="audit")


async def test_first_freeze_applies_until_it_is_lifted(store: Store) -> None:
    freezes = Freezes(store)
    first = await freezes.freeze("main", reason="stolen laptop", by="ana")
    assert (first.tenant, first.reason, first.by) == ("main", "stolen laptop", "ana")
    assert await freezes.freeze("main", reason="another", by="bo") == first
    assert await freezes.read("main") == first
    assert await freezes.unfreeze("main") == first
    assert (await freezes.unfreeze("main"), await freezes.read("main"), await freezes.all()) == (None, None, [])
    assert await store.claim(KEY, **MAIN) == Claim(kind="fresh")


async def test_every_freeze_is_listed(store: Store) -> None:
    for tenant in ("main", "other"):
        await Freezes(store).freeze(tenant, reason="r", by="ana")
    assert {each.tenant for each in await Freezes(store).all()} == {"main", "other"}


async def test_freeze_waits_for_begun_claims(store: Store, store_url: str) -> None:
    async with open_store(store_url) as second:
        for turn in range(20):
            tenant = f"t{turn}"
            who = {**MAIN, "workflow": f"turn/{tenant}/s/t"}
            keys = [f"{tenant}-{number}" for number in range(8)]
            claims = [asyncio.create_task(second.claim(key, **who | {"call": key})) for key in keys]
            await asyncio.sleep(turn / 4_000)
            await Freezes(store).freeze(tenant, reason="r", by="ana")
            seen = await store.run(functools.partial(tickets, keys=keys))
            assert (await store.claim(f"{tenant}-late", **who)).kind == "frozen"
            kinds = dict(zip(keys, [claim.kind for claim in await asyncio.gather(*claims)], strict=True))
            assert {key for key, kind in kinds.items() if kind == "fresh"} == seen
            assert set(kinds.values()) <= {"fresh", "frozen"}


@pytest.mark.postgres
async def test_freeze_does_not_overtake_a_running_claim(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = threading.Event()

    def slow(connection: Connection, tenant: str) -> Freeze | None:
        found = freeze_of(connection, tenant)
        looked.set()
        connection.execute(text("SELECT pg_sleep(0.4)"))
        return found

    monkeypatch.setattr("signoff.store.store.freeze_of", slow)
    async with open_store(postgres_url) as store:
        claim = asyncio.create_task(store.claim(KEY, **MAIN))
        await asyncio.to_thread(looked.wait)
        await Freezes(store).freeze("main", reason="r", by="ana")
        assert await store.read_ticket(KEY) is not None
        assert (await claim).kind == "fresh"
