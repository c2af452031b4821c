import asyncio
from datetime import timedelta
from typing import Any, get_args

import pytest
from sqlalchemy import insert, select

from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.limits import REFUSAL_DAYS
from signoff.store.refusal_counts import RefusalCounts, RefusalKind, refusals_since
from signoff.store.store import Store, open_store
from signoff.store.tables import PROBES, REFUSALS

_DAY = timedelta(days=1)


async def test_two_processes_count_refusals_together(store: Store, store_url: str) -> None:
    async with open_store(store_url) as other:
        for _ in range(3):
            store.count_refusal("forged")
            other.count_refusal("forged")
        other.count_refusal("late")
    await store._refusals.flush()
    assert await refusals_since(store.run, _DAY) == {"forged": 6, "late": 1}


async def test_flood_of_refusals_costs_one_write(store: Store) -> None:
    runs = 0

    async def run(work: Any) -> Any:
        nonlocal runs
        runs += 1
        return await store.run(work)

    counts = RefusalCounts(run)
    for _ in range(10_000):
        counts.count("forged")
    await counts.close()
    assert runs == 1
    assert await refusals_since(store.run, _DAY) == {"forged": 10_000}


async def test_unavailable_store_loses_no_count(store: Store) -> None:
    away = True

    async def run(work: Any) -> Any:
        if away:
            raise StoreUnavailable("it is away")
        return await store.run(work)

    counts = RefusalCounts(run)
    counts.count("late")
    await counts.flush()
    away = False
    counts.count("late")
    await counts.close()
    assert await refusals_since(store.run, _DAY) == {"late": 2}


async def test_old_refusal_counts_are_dropped(store: Store) -> None:
    await store.run(lambda connection: connection.execute(insert(REFUSALS).values(kind="late", hour=1, number=7)))
    assert await refusals_since(store.run, timedelta(days=REFUSAL_DAYS)) == {}
    store.count_refusal("forged")
    await store._refusals.flush()
    kept = await store.run(lambda connection: connection.execute(select(REFUSALS.c.kind)).scalars().all())
    assert list(kept) == ["forged"]


async def test_refusal_count_is_written_within_a_second(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signoff.store.refusal_counts.REFUSAL_FLUSH_SECONDS", 0.01)
    store.count_refusal("busy")
    async with asyncio.timeout(60):
        while not (found := await refusals_since(store.run, _DAY)):
            await asyncio.sleep(0.01)
    assert found == {"busy": 1}


async def test_every_refusal_kind_fits_its_column(store: Store) -> None:
    for kind in get_args(RefusalKind):
        store.count_refusal(kind)
    await store._refusals.flush()
    assert set(await refusals_since(store.run, _DAY)) == set(get_args(RefusalKind))


async def test_store_check_writes_and_returns_the_time(store: Store) -> None:
    first = await store.check()
    assert await store.check() >= first
    rows = await store.run(lambda connection: connection.execute(select(PROBES.c.name)).scalars().all())
    assert list(rows) == ["ready"]
