"""Measures the backlog of a store: requests waiting for approvers, and queue entries."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, Table, case, func, or_, select

from signoff.store.questions.request_lists import waits
from signoff.store.store import Store
from signoff.store.tables import (
    ANSWERS,
    ARRIVALS,
    DELIVERIES,
    EVENT_DELIVERIES,
    FREEZES,
    QUESTIONS,
    StoreClock,
)
from signoff.telemetry.metric_table import AGES

_OUT: Final = ("sent", "delivered", "read")


class QueueBacklog(NamedTuple):
    """The backlog of one queue."""

    entries: int
    oldest_seconds: float
    """The wait of the oldest entry, or 0."""


class RequestBacklog(NamedTuple):
    """The requests of one tenant that wait for approvers."""

    requests: int
    oldest_seconds: float
    """The wait of the oldest request."""
    total_seconds: float
    """The total wait of all requests."""
    by_age: tuple[int, ...]
    """The number of requests for each upper bound in `AGES`, then of older ones.

    Each counts once.
    """


class Backlog(NamedTuple):
    """The whole backlog of a store, read in one transaction."""

    requests: Mapping[str, RequestBacklog]
    """By tenant. Tenants without a waiting request are missing."""
    queues: Mapping[str, QueueBacklog]
    """By queue."""
    frozen: int
    """The number of frozen tenants."""


class BacklogReader:
    """Reads the backlog of a store. Only a gateway's role may: workers cannot read the queues."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self) -> Backlog:
        """By the store's clock. Raises `StoreUnavailable`."""
        return await self._store.read(_read)


def _read(connection: Connection) -> Backlog:
    return Backlog(
        {row.tenant: _request_backlog(row) for row in connection.execute(_REQUESTS)},
        {name: _queue_backlog(connection, query) for name, query in _QUEUES.items()},
        connection.scalar(select(func.count()).select_from(FREEZES)) or 0,
    )


def _request_backlog(row: Any) -> RequestBacklog:
    up_to = [int(row._mapping[_label(bound)]) for bound in AGES]
    by_age = [number - before for number, before in zip(up_to, (0, *up_to), strict=False)]
    return RequestBacklog(
        row.requests, _seconds(row.oldest), _seconds(row.total), (*by_age, row.requests - (up_to[-1] if up_to else 0))
    )


def _queue_backlog(connection: Connection, query: Select[Any]) -> QueueBacklog:
    row = connection.execute(query).one()
    return QueueBacklog(row.entries, _seconds(row.oldest))


def _seconds(milliseconds: Any) -> float:
    # An entry written after the clock was read has waited 0 seconds, not a negative time.
    return max(float(milliseconds or 0), 0.0) / 1000


def _label(bound: float) -> str:
    return f"up_to_{bound:.0f}"


def _requests() -> Select[Any]:
    age = StoreClock() - QUESTIONS.c.opened_at
    return (
        select(
            QUESTIONS.c.tenant,
            func.count().label("requests"),
            func.max(age).label("oldest"),
            func.sum(age).label("total"),
            *(func.sum(case((age <= bound * 1000, 1), else_=0)).label(_label(bound)) for bound in AGES),
        )
        .where(*waits())
        .group_by(QUESTIONS.c.tenant)
    )


def _queue(table: Table, since: ColumnElement[int], *where: ColumnElement[bool]) -> Select[Any]:
    oldest = (StoreClock() - func.min(since)).label("oldest")
    entries: ColumnElement[Any] = func.count().label("entries")
    return select(entries, oldest).select_from(table).where(*where)


def _is_backlog(table: Table) -> ColumnElement[bool]:
    # A first attempt planned for later is no backlog. A further attempt is, whenever it is due.
    return or_(table.c.due_at <= StoreClock(), table.c.attempts > 0)


_REQUESTS: Final = _requests()
_SINCE_PLANNED: Final = case((DELIVERIES.c.attempts > 0, DELIVERIES.c.created_at), else_=DELIVERIES.c.due_at)
_QUEUES: Final[Mapping[str, Select[Any]]] = {
    "cards": _queue(DELIVERIES, _SINCE_PLANNED, DELIVERIES.c.state == "planned", _is_backlog(DELIVERIES)),
    "card_endings": _queue(
        DELIVERIES,
        DELIVERIES.c.ended_at,
        DELIVERIES.c.state.in_(_OUT),
        DELIVERIES.c.ended_at.is_not(None),
    ),
    "arrivals": _queue(ARRIVALS, ARRIVALS.c.received_at, ARRIVALS.c.state == "new"),
    "answers": _queue(ANSWERS, ANSWERS.c.answered_at, ANSWERS.c.handed_at.is_(None), ANSWERS.c.voided_at.is_(None)),
    "events": _queue(EVENT_DELIVERIES, EVENT_DELIVERIES.c.created_at, EVENT_DELIVERIES.c.state == "new"),
    "dead_events": _queue(EVENT_DELIVERIES, EVENT_DELIVERIES.c.created_at, EVENT_DELIVERIES.c.state == "dead"),
}
"""Queries by the queue name used in metrics.

In order: cards to send, cards to close, arrivals from channels, answers not handed to their turn, events for
subscriptions, and events given up.
"""
