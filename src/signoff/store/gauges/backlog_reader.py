"""Reads how much waits in a store, and for how long: requests for people, and the entries of each queue."""

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
    """What waits in one queue."""

    entries: int
    """How many entries."""
    oldest_seconds: float
    """For how long the oldest has waited; 0 where there is none."""


class RequestBacklog(NamedTuple):
    """What waits for people in one tenant."""

    requests: int
    """How many requests."""
    oldest_seconds: float
    """For how long the oldest has waited."""
    total_seconds: float
    """For how long they have waited, all together."""
    by_age: tuple[int, ...]
    """How many have waited up to each bound of `AGES`, and how many longer, each counted once."""


class Backlog(NamedTuple):
    """All that waits in a store, read in one transaction."""

    requests: Mapping[str, RequestBacklog]
    """By tenant; none for a tenant where nothing waits."""
    queues: Mapping[str, QueueBacklog]
    """By queue."""
    frozen: int
    """How many tenants are frozen."""


class BacklogReader:
    """Reads the backlog of a store. Only a gateway's role may: workers do not see the queues."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self) -> Backlog:
        """Reads the backlog of now, by the store's clock. Raises `StoreUnavailable`."""
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
    # An entry that was written after the clock was read has waited for no time, not for less.
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
    # A first try of later is planned, and no backlog; a further one is, whenever it is due.
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
"""Queues by the name that metrics give them: cards to be sent, cards to say that it is over, what channels brought,
answers that no turn was given, events for subscriptions, and those that were given up."""
