"""The plans of every claim: each statement seeks the rows that it needs, however many wait."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, event, text

from signoff.audit.event_deliveries import EventDeliveries
from signoff.contracts.audit import CloudEvent
from signoff.formats.tenant_limits import parse_tenant_limits
from signoff.registry.manifest.subscription_sections import Subscription
from signoff.store.delivery_queue import DeliveryQueue
from signoff.store.inbound_queue import InboundQueue
from signoff.store.store import Store
from signoff.testing import a_request

ROWS = 20_000
LIMITS = parse_tenant_limits("deliveries=600/minute")
FEED = Subscription("feed", ("*",), tenant="t1")
EVENT = CloudEvent(id="t/1", source="turn:t", type="approval.requested", time="now").model_dump_json()
TABLES = ("deliveries", "arrivals", "event_deliveries", "counted_acts")
NUMBERS = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :rows)"
# Of ten rows, four are due, two are leased, two are due later and two are done.
LATER = 3_000_000_000_000
TIMES = f"""n * 7 % 3600000 + CASE WHEN n % 10 > 7 THEN {LATER} ELSE 0 END,
    CASE WHEN n % 10 IN (6, 7) THEN {LATER} ELSE 0 END"""
FILLED = (
    f"""INSERT INTO deliveries (token, tenant, approval, revision, person, channel, address, state, kind, vendor_id,
        handle, code, message, attempts, due_at, claimed_until, created_at, changed_at, request, ended_at)
    {NUMBERS} SELECT 'c' || n, 't' || (n / 10 % 4), 'a' || n, 1, 'p', CASE WHEN n % 3 = 0 THEN 'mail' ELSE 'chat' END,
        'p', CASE WHEN n % 10 IN (0, 1) THEN 'failed' ELSE 'planned' END, 'ask', '', '{{}}', '', '', 0, {TIMES}, 1, 1,
        :request, CASE WHEN n % 4 = 0 THEN 1 END FROM numbers""",
    f"""INSERT INTO arrivals (key, channel, kind, body, received_at, due_at, claimed_until, attempts, state, speaker)
    {NUMBERS} SELECT 'k' || n, 'channel' || (n / 10 % 4), 'action', '', 1, {TIMES}, 0,
        CASE WHEN n % 10 IN (0, 1) THEN 'done' ELSE 'new' END, '' FROM numbers""",
    f"""INSERT INTO event_deliveries (key, subscription, tenant, number, body, code, due_at, claimed_until, attempts,
        created_at, state)
    {NUMBERS} SELECT 'k' || n, 'feed', 't' || (n / 10 % 4), n, :event, '', {TIMES}, 0, 1,
        CASE WHEN n % 10 IN (0, 1) THEN 'dead' ELSE 'new' END FROM numbers""",
    f"""INSERT INTO counted_acts (key, kind, tenant, at)
    {NUMBERS} SELECT 'k' || n, CASE WHEN n % 2 = 0 THEN 'card' ELSE 'event' END, 't' || (n / 10 % 4), n
        FROM numbers""",
)
CLAIMS: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "cards to send": lambda store: DeliveryQueue(store).claim_due(9, "chat"),
    "cards to send within limits": lambda store: DeliveryQueue(store, LIMITS).claim_due(9, "chat"),
    "cards to close": lambda store: DeliveryQueue(store).claim_to_close(9, "chat"),
    "arrivals": lambda store: InboundQueue(store).claim(9),
    "events": lambda store: EventDeliveries(store).claim(FEED, 9),
    "events within limits": lambda store: EventDeliveries(store, LIMITS).claim(FEED, 9),
}


async def fill(store: Store) -> None:
    def write(connection: Connection) -> None:
        for each in FILLED:
            values = {"rows": ROWS, "request": a_request().model_dump_json(), "event": EVENT}
            named = {name: value for name, value in values.items() if f":{name}" in each}
            connection.execute(text(each), named)
        for table in TABLES:
            connection.execute(text(f"ANALYZE {table}"))

    await store.run(write)


@asynccontextmanager
async def executed(store: Store) -> AsyncIterator[list[tuple[str, Any]]]:
    """The writer's statements on the queues in this block, with their parameters."""
    found: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if re.search(rf"\b({'|'.join(TABLES)})\b", statement) and not statement.startswith("INSERT"):
            found.append((statement, parameters))

    engine = await store.run(lambda connection: connection.engine)
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)


async def plan(store: Store, statement: str, parameters: Any) -> list[str]:
    explain = "EXPLAIN QUERY PLAN" if store.dialect == "sqlite" else "EXPLAIN (COSTS OFF)"

    def read(connection: Connection) -> list[str]:
        return [str(row[-1]) for row in connection.exec_driver_sql(f"{explain} {statement}", parameters)]

    return await store.run(read)


def faults(lines: list[str]) -> list[str]:
    """The lines of a plan that read rows which the statement does not need, or sort them."""
    whole = rf"^SCAN ({'|'.join(TABLES)})|Seq Scan on|TEMP B-TREE|Sort|Filter:.*\b(free_at|at)\b"
    found = [line for line in lines if re.search(whole, line)]
    # PostgreSQL walks through a whole index if no condition follows.
    pairs = zip(lines, [*lines[1:], ""], strict=True)
    return found + [line for line, after in pairs if re.search("Index.* using ", line) and "Index Cond" not in after]


@pytest.fixture
async def filled(store: Store) -> Store:
    await fill(store)
    return store


async def test_claims_among_many_waiting_rows_read_few_rows(filled: Store) -> None:
    for name, claim in CLAIMS.items():
        async with executed(filled) as statements:
            assert await claim(filled), name
        assert len(statements) >= 2
        for statement, parameters in statements:
            lines = await plan(filled, statement, parameters)
            assert not faults(lines), "\n".join((name, statement, *lines))


async def test_plan_that_reads_many_rows_is_a_fault(filled: Store) -> None:
    for statement in (
        "SELECT token FROM deliveries WHERE due_at < 5 ORDER BY due_at LIMIT 9",
        "SELECT key FROM arrivals WHERE state = 'new' ORDER BY free_at",
        "SELECT channel FROM arrivals WHERE state = 'new' ORDER BY channel LIMIT 9",
        "SELECT key FROM counted_acts WHERE at + 1 > 5",
    ):
        assert faults(await plan(filled, statement, ())), statement
