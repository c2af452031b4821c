"""Measures the backlog of a store: requests waiting for approvers, and queue entries.

Every statement reads an index alone. Gateways share the measurement: see `backlog_readings`.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, TextClause, bindparam, case, func, select, tuple_

from signoff.contracts.frozen_model import FrozenModel
from signoff.store.store import Store
from signoff.store.tables import (
    ANSWERS,
    ARRIVALS,
    DELIVERIES,
    EVENT_DELIVERIES,
    FREEZES,
    OUT_AND_OVER,
    QUESTIONS,
    RETRIED,
    StoreClock,
)
from signoff.telemetry.metric_table import AGES

PIECE: Final = 10_000
"""Questions counted in one statement, so that SQLite's other readers wait only for one piece."""
_END_OF_TIME: Final = (2**63 - 1, "")


class QueueBacklog(FrozenModel):
    """The backlog of one queue."""

    entries: int
    oldest_seconds: float
    """The wait of the oldest entry, or 0."""


class RequestBacklog(FrozenModel):
    """The requests of one tenant that wait for approvers."""

    requests: int
    oldest_seconds: float
    total_seconds: float
    """The total wait of all requests."""
    by_age: tuple[int, ...]
    """The number of requests for each upper bound in `AGES`, then of older ones.

    Each counts once.
    """

    def plus(self, other: "RequestBacklog") -> "RequestBacklog":
        return RequestBacklog(
            requests=self.requests + other.requests,
            oldest_seconds=max(self.oldest_seconds, other.oldest_seconds),
            total_seconds=self.total_seconds + other.total_seconds,
            by_age=tuple(one + two for one, two in zip(self.by_age, other.by_age, strict=True)),
        )


class Backlog(FrozenModel):
    """The whole backlog of a store."""

    requests: Mapping[str, RequestBacklog]
    """By tenant. Tenants without a waiting request are missing."""
    queues: Mapping[str, QueueBacklog]
    """By queue."""
    frozen: int


class BacklogReader:
    """Reads the backlog of a store. Only a gateway's role may: workers cannot read the queues."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self) -> Backlog:
        """By the store's clock. Requests may come and go while it reads. Raises `StoreUnavailable`."""
        requests = await self._requests()
        queues = {name: await self._store.read(partial(_read_queue, queries)) for name, queries in _QUEUES.items()}
        frozen = await self._store.read(lambda connection: connection.scalar(_FROZEN))
        return Backlog(requests=requests, queues=queues, frozen=frozen or 0)

    async def _requests(self) -> dict[str, RequestBacklog]:
        now = await self._store.read(lambda connection: int(connection.execute(_CLOCK).scalar_one()))
        found: dict[str, RequestBacklog] = {}
        # Every approval's id is greater than "", so this begins with the deadlines of now.
        place: tuple[int, str] | None = (now, "")
        while place is not None:
            rows, place = await self._store.read(partial(_read_piece, now, place))
            for tenant, part in _by_tenant(rows).items():
                found[tenant] = part if tenant not in found else found[tenant].plus(part)
        return found


def _read_piece(
    now: int, after: tuple[int, str], connection: Connection
) -> tuple[Sequence[Row[Any]], tuple[int, str] | None]:
    """Also return the piece's last place, or `None` for the last piece."""
    values = {"now": now, "since": after[0], "after": after[1]}
    row = connection.execute(_END, {**values, "skipped": PIECE - 1}).first()
    end = None if row is None else (row.last_at, row.approval)
    # The last piece has a bound as well: without one, SQLite would read every question.
    until, last = end or _END_OF_TIME
    return connection.execute(_PIECE, {**values, "until": until, "last": last}).all(), end


def _by_tenant(rows: Iterable[Row[Any]]) -> dict[str, RequestBacklog]:
    found: dict[str, RequestBacklog] = {}
    for row in rows:
        by_age = tuple(row.requests if place == row.age else 0 for place in range(len(AGES) + 1))
        part = RequestBacklog(
            requests=row.requests,
            oldest_seconds=_seconds(row.oldest),
            total_seconds=_seconds(row.total),
            by_age=by_age,
        )
        found[row.tenant] = part if row.tenant not in found else found[row.tenant].plus(part)
    return found


def _seconds(milliseconds: Any) -> float:
    # An entry written after the clock was read has waited 0 seconds, not a negative time.
    return max(float(milliseconds or 0), 0.0) / 1000


def _requests() -> Select[Any]:
    waited = bindparam("now", type_=QUESTIONS.c.opened_at.type) - QUESTIONS.c.opened_at
    age = case(*((waited <= round(bound * 1000), place) for place, bound in enumerate(AGES)), else_=len(AGES)).label(
        "age"
    )
    return (
        select(
            QUESTIONS.c.tenant,
            age,
            func.count().label("requests"),
            func.max(waited).label("oldest"),
            func.sum(waited).label("total"),
        )
        # Not `IS NULL`: the index of unsettled questions is in another order, and lacks a column.
        .where(QUESTIONS.c.ended_at.is_(None), func.coalesce(QUESTIONS.c.settled_at, 0) == 0, _AFTER, _UNTIL)
        .group_by(QUESTIONS.c.tenant, age)
    )


def _read_queue(queries: Sequence[Select[Any]], connection: Connection) -> QueueBacklog:
    parts = [connection.execute(query).one() for query in queries]
    return QueueBacklog(
        entries=sum(part.entries or 0 for part in parts), oldest_seconds=max(_seconds(part.oldest) for part in parts)
    )


def _queue(
    table: Table,
    since: ColumnElement[int],
    *where: ColumnElement[bool] | TextClause,
    counts: ColumnElement[Any] | None = None,
) -> Select[Any]:
    entries = func.count() if counts is None else func.sum(counts)
    oldest = (StoreClock() - func.min(since)).label("oldest")
    return select(entries.label("entries"), oldest).select_from(table).where(*where)


_CLOCK: Final = select(StoreClock())
# Read the clock once in a subquery: PostgreSQL uses no index for a clock that advances during the query.
_NOW: Final = _CLOCK.scalar_subquery()
_FROZEN: Final = select(func.count()).select_from(FREEZES)
_AFTER: Final = tuple_(QUESTIONS.c.last_at, QUESTIONS.c.approval) > tuple_(bindparam("since"), bindparam("after"))
_UNTIL: Final = tuple_(QUESTIONS.c.last_at, QUESTIONS.c.approval) <= tuple_(bindparam("until"), bindparam("last"))
_END: Final = (
    select(QUESTIONS.c.last_at, QUESTIONS.c.approval)
    .where(QUESTIONS.c.ended_at.is_(None), _AFTER)
    .order_by(QUESTIONS.c.last_at, QUESTIONS.c.approval)
    .offset(bindparam("skipped"))
    .limit(1)
)
_PIECE: Final = _requests()
_QUEUES: Final[Mapping[str, Sequence[Select[Any]]]] = {
    "cards": (
        # A first attempt planned for later is no backlog. A further attempt is, whenever it is due.
        _queue(DELIVERIES, DELIVERIES.c.due_at, DELIVERIES.c.state == "planned", DELIVERIES.c.due_at <= _NOW),
        _queue(
            DELIVERIES,
            DELIVERIES.c.created_at,
            RETRIED,
            counts=case((DELIVERIES.c.due_at > _NOW, 1), else_=0),
        ),
    ),
    "card_endings": (_queue(DELIVERIES, DELIVERIES.c.ended_at, OUT_AND_OVER),),
    "arrivals": (_queue(ARRIVALS, ARRIVALS.c.received_at, ARRIVALS.c.state == "new"),),
    "answers": (_queue(ANSWERS, ANSWERS.c.answered_at, ANSWERS.c.handed_at.is_(None), ANSWERS.c.voided_at.is_(None)),),
    "events": (_queue(EVENT_DELIVERIES, EVENT_DELIVERIES.c.created_at, EVENT_DELIVERIES.c.state == "new"),),
    "dead_events": (_queue(EVENT_DELIVERIES, EVENT_DELIVERIES.c.created_at, EVENT_DELIVERIES.c.state == "dead"),),
}
"""Queries by the queue name used in metrics. Their entries add up.

In order: cards to send, cards to close, arrivals from channels, answers not handed to their turn, events for
subscriptions, and events given up.
"""
