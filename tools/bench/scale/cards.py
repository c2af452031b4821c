"""Measures the queue of cards at several numbers of due cards: claims, and cards a second of one dispatcher.

The cards are synthetic rows of one channel, whose vendor answers at once. One tenant has most of them.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from sqlalchemy import BigInteger, Connection, bindparam, text

from signoff.audit.log import AuditLog
from signoff.channels.base import Channel
from signoff.channels.outbound.dispatcher import Dispatcher
from signoff.channels.outbound.sender import SenderDeps
from signoff.contracts.audit import AuditEntry
from signoff.contracts.clock import system_clock
from signoff.contracts.person import Person
from signoff.gateway.vendors.channel_tasks import card_links
from signoff.people.directory import Directory, FixedDirectory
from signoff.registry.manifest.channel_sections import RoutingRules
from signoff.store.delivery_queue import DeliveryQueue
from signoff.store.messages.own_messages import OwnMessages
from signoff.store.store import Store
from signoff.testing.builders import a_request
from signoff.testing.recording_channel import recording_channel
from signoff.testing.rig import ScriptedEvents
from tools.bench.scale.report import Point, Spread, spread
from tools.bench.turns import percentile

NUMBERS: Final = (1_000, 30_000, 300_000)
CLAIMED: Final = 64
ROUNDS: Final = 5
CLAIMS: Final = 20
"""The claims of one round."""
SECONDS: Final = 5.0
"""How long the dispatcher sends in one round."""
PEOPLE: Final = 1_000
"""The people of each tenant."""
TENANTS: Final = 10
_AT_ONCE: Final = 20_000
_CHANNEL: Final = "chat"
_OTHER: Final = "mail"
_ENDLESS: Final = 1e6
"""The pace of the vendor, in cards a second."""
_LIFE: Final = timedelta(days=1)
# Four of five cards are of the first tenant. Each card has its own request, so that its record has its own stream.
_ADD: Final = text("""
    WITH RECURSIVE numbers(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM numbers WHERE n < :last),
    cards AS (
        SELECT n, 'tenant' || CASE WHEN n % 5 = 0 THEN 1 + n / 5 % (:tenants - 1) ELSE 0 END AS tenant FROM numbers
    )
    INSERT INTO deliveries (
        token, tenant, approval, revision, person, channel, address, state, kind, vendor_id, handle, code, message,
        attempts, due_at, claimed_until, created_at, changed_at, request
    )
    SELECT 'card' || n, tenant, tenant || '.s.t' || n || '.c1.1', 1, 'p' || (n % :people), :channel,
        'p' || (n % :people),
        'planned', 'ask', '', '{}', '', '', 0, :now - n * 7919 % 3600000, 0, :now, :now,
        replace(replace(CAST(:request AS TEXT), '@tenant', tenant), '@turn', 't' || n)
    FROM cards
""").bindparams(*(bindparam(name, type_=BigInteger) for name in ("first", "last", "tenants", "people", "now")))
_COUNT: Final = text("SELECT count(*) FROM deliveries WHERE state = 'planned'")
_ANALYZE: Final = text("ANALYZE deliveries")
_GLANCE_SECONDS: Final = 0.01
_SETTLE_SECONDS: Final = 1.0
_FREE: Final = text("UPDATE deliveries SET claimed_until = 0 WHERE claimed_until > 0")


async def measure_cards(
    store: Store, numbers: Sequence[int], rounds: int = ROUNDS, seconds: float = SECONDS
) -> list[Point]:
    """The `numbers` ascend."""
    points, added, people = [], 0, _make_people()
    for number in numbers:
        added = await _fill(store, added, number)
        queue = DeliveryQueue(store)
        figures = await _measure_claims(store, queue, rounds)
        sent = []
        for _ in range(rounds):
            added = await _fill(store, added, number)
            sent.append(await _send(store, queue, people, number, seconds))
        figures["cards a second"] = spread(pace for pace, _ in sent)
        figures["processor a card, ms"] = spread(used for _, used in sent)
        points.append(Point(turns=number, figures=figures))
        print(f"{number} due: {points[-1].model_dump_json()}", flush=True)
    return points


async def _fill(store: Store, added: int, number: int) -> int:
    have = await store.read(lambda connection: connection.scalar(_COUNT)) or 0
    request = a_request(
        tenant="@tenant",
        turn="@turn",
        approvers=("role:approvers",),
        notify=(_CHANNEL,),
        opened_at=datetime.now(UTC),
        expires_at=datetime.now(UTC) + _LIFE,
    ).model_dump_json()
    last = added + max(number - have, 0)
    for first in range(added + 1, last + 1, _AT_ONCE):
        values: dict[str, Any] = {
            "first": first,
            "last": min(first + _AT_ONCE - 1, last),
            "tenants": TENANTS,
            "people": PEOPLE,
            "channel": _CHANNEL,
            "now": round(time.time() * 1000),
            "request": request,
        }
        await store.run(partial(Connection.execute, statement=_ADD, parameters=values))
    # As PostgreSQL's autovacuum does in time.
    await store.run(partial(Connection.execute, statement=_ANALYZE))
    return last


async def _measure_claims(store: Store, queue: DeliveryQueue, rounds: int) -> dict[str, Spread]:
    reads: dict[str, Callable[[], Awaitable[object]]] = {
        f"claim of {CLAIMED}": lambda: queue.claim_due(CLAIMED, _CHANNEL),
        "claim of a channel without cards": lambda: queue.claim_due(CLAIMED, _OTHER),
        "claim to close, none ended": lambda: queue.claim_to_close(CLAIMED, _CHANNEL),
    }
    figures: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for name, read in reads.items():
            taken = [await _timed(read) for _ in range(CLAIMS)]
            for rank in (50, 95):
                figures[f"{name}, p{rank}, ms"].append(percentile(taken, rank))
        await store.run(lambda connection: connection.execute(_FREE).close())
    return {name: spread(values) for name, values in figures.items()}


async def _timed(read: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await read()
    return (time.perf_counter() - began) * 1000


async def _send(
    store: Store, queue: DeliveryQueue, people: Directory, number: int, seconds: float
) -> tuple[float, float]:
    """Return the cards a second of one new dispatcher, and its processor milliseconds a card.

    It sends for `seconds`, or until it has sent `number` cards.
    """
    channel = recording_channel(_CHANNEL, identity="chat", per_second=_ENDLESS)
    dispatcher = asyncio.create_task(_dispatcher(store, queue, people, channel).run())
    began, used = time.perf_counter(), time.process_time()
    for _ in range(round(seconds / _GLANCE_SECONDS)):
        if len(channel.cards) >= number:
            break
        await asyncio.sleep(_GLANCE_SECONDS)
    sent, took, used = len(channel.cards), time.perf_counter() - began, time.process_time() - used
    dispatcher.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await dispatcher
    # PostgreSQL may still end the statements of the cancelled dispatcher.
    await asyncio.sleep(_SETTLE_SECONDS)
    await store.run(lambda connection: connection.execute(_FREE).close())
    return sent / took, used * 1000 / max(sent, 1)


def _make_people() -> Directory:
    return FixedDirectory(
        Person(id=f"p{person}", tenant=f"tenant{tenant}", roles=("approvers",), identities={"chat": (f"p{person}",)})
        for tenant in range(TENANTS)
        for person in range(PEOPLE)
    )


def _dispatcher(store: Store, queue: DeliveryQueue, people: Directory, channel: Channel) -> Dispatcher:
    async def record(entries: Sequence[AuditEntry]) -> None:
        await AuditLog(store).append(entries)

    deps = SenderDeps(
        deliveries=queue,
        own_messages=OwnMessages(store),
        people=people,
        links=card_links(store, "https://signoff.example", {_CHANNEL: channel}),
        record=record,
        clock=system_clock,
        digest_over=CLAIMED,
    )
    return Dispatcher(ScriptedEvents(), {_CHANNEL: channel}, RoutingRules(), deps)
