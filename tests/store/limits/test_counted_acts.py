import asyncio

from sqlalchemy import func, select, update

from signoff.formats.tenant_limits import RateLimit
from signoff.store.limits.counted_acts import SWEPT, StartCounts
from signoff.store.store import Store, open_store
from signoff.store.tables import COUNTED_ACTS

HOUR = 3_600.0


async def take(store: Store, name: str, count: int, tenant: str = "main", period: str = "hour") -> float:
    starts = StartCounts(tenant, RateLimit(count=count, period=period))
    return await store.run(lambda connection: starts.take(connection, name))


async def let_time_pass(store: Store, seconds: float) -> None:
    earlier = update(COUNTED_ACTS).values(at=COUNTED_ACTS.c.at - int(seconds * 1000))
    await store.run(lambda connection: connection.execute(earlier).close())


async def rows(store: Store) -> int:
    return await store.run(lambda connection: connection.scalar(select(func.count()).select_from(COUNTED_ACTS)) or 0)


async def test_concurrent_starts_never_exceed_the_limit(store_url: str) -> None:
    async with open_store(store_url) as one, open_store(store_url) as other:
        found = await asyncio.gather(*(take((one, other)[number % 2], f"s/{number}", 10) for number in range(50)))
        assert sum(again == 0 for again in found) == 10
        assert all(again == 0 or HOUR - 600 < again <= HOUR for again in found)
        assert await rows(one) == 10


async def test_limit_applies_to_any_window_of_its_period(store: Store) -> None:
    assert await take(store, "a", 2) == 0
    await let_time_pass(store, 0.75 * HOUR)
    assert await take(store, "b", 2) == 0
    again = await take(store, "c", 2)
    assert 0.2 * HOUR < again <= 0.25 * HOUR
    await let_time_pass(store, again)
    assert await take(store, "c", 2) == 0
    assert await take(store, "d", 2) > 0.7 * HOUR


async def test_repeated_start_is_counted_once(store: Store) -> None:
    assert [await take(store, name, 1) == 0 for name in ("a", "a", "b", "a")] == [True, True, False, True]
    assert await rows(store) == 1


async def test_each_tenant_has_its_own_count(store: Store) -> None:
    assert await take(store, "a", 1) == 0
    assert await take(store, "b", 1) > 0
    assert await take(store, "b", 1, "acme") == 0


async def test_rows_outside_every_limit_are_removed(store: Store) -> None:
    """Each counted start removes them, so that the table never outgrows the period."""
    for number in range(SWEPT + 20):
        await take(store, f"s/{number}", 1_000, period="minute")
    await let_time_pass(store, 61)
    await take(store, "s/next", 1_000, period="minute")
    assert await rows(store) == 21
    await take(store, "s/after", 1_000, period="minute")
    assert await rows(store) == 2
