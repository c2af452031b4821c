"""Lists the requests that wait in a tenant or belong to turns, in their present state."""

import logging
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, bindparam, case, func, or_, select, tuple_

from signoff.approvals.request_state import request_at, undo_seconds
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.grant import Freeze
from signoff.contracts.ids import TurnKey
from signoff.store.claim_conditions import freeze_of
from signoff.store.questions.approval_rows import UNREADABLE, answer_from_row, question_from_row
from signoff.store.questions.question_readers import ListPlace, concerns, find_places
from signoff.store.store import Store
from signoff.store.tables import ANSWERS, QUESTIONS, StoreClock, time_from_millis
from signoff.store.tickets import Ticket, read_tickets

_log = logging.getLogger(__name__)
PIECE: Final = 100
"""Questions read at once. This limits how long a long list blocks other work."""
_FEW: Final = 10
"""Up to this number, parsing is faster than starting a thread for it."""
_NAMES: Final = 500
"""Approvals named in one query for their answers."""
_QUESTIONS: Final = select(QUESTIONS, StoreClock().label("clock"))
_OF_TURN: Final = _QUESTIONS.where(
    QUESTIONS.c.tenant == bindparam("tenant"),
    QUESTIONS.c.session == bindparam("session"),
    QUESTIONS.c.turn == bindparam("turn"),
).order_by(QUESTIONS.c.approval, QUESTIONS.c.revision)
_LATER: Final = QUESTIONS.alias()
_OPEN: Final = (
    QUESTIONS.c.ended_at.is_(None),
    # Read the clock once in a subquery: PostgreSQL uses no index for a clock that advances during the query.
    QUESTIONS.c.last_at >= select(StoreClock()).scalar_subquery(),
    ~select(_LATER.c.revision)
    .where(_LATER.c.approval == QUESTIONS.c.approval, _LATER.c.revision > QUESTIONS.c.revision)
    .exists(),
)


class _Found(NamedTuple):
    """Unparsed question rows, their answers in order, and the store's clock at that time."""

    rows: Sequence[Row[Any]]
    answers: Sequence[Row[Any]]
    now: datetime


class _Page(NamedTuple):
    """A piece of a list."""

    found: _Found
    end: ListPlace | None
    """The last place, or `None` on the last page."""


class TurnRows(NamedTuple):
    """The store's data on one turn, read in one transaction."""

    requests: list[ApprovalRequest]
    """Its requests without cards, all revisions in their present state.

    Each approval's are oldest first.
    """
    tickets: list[Ticket]
    """Its tickets, in the order of their claims."""
    freeze: Freeze | None
    undo_seconds: float = 0.0
    """Seconds until none of its denials can be undone."""


class RequestLists:
    """Lists the requests in a store, without their cards. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_waiting(self, tenant: str) -> list[ApprovalRequest]:
        """Soonest deadline first, without cards."""
        return [each async for piece in self.iterate_waiting(tenant) for each in piece]

    async def iterate_waiting(
        self, tenant: str, *, readers: Sequence[str] | None = None, piece: int = PIECE
    ) -> AsyncGenerator[list[ApprovalRequest], None]:
        """Yield the requests in pieces of at most `piece` and `PIECE`, soonest deadline first.

        `readers` restricts them to requests that may concern one of these approver entries. This only preselects:
        callers must check that a person may read a request before showing it.
        """
        size = min(piece, PIECE)
        find = partial(_find_waiting, size) if readers is None else partial(_find_waiting_of, readers, size)
        last: ListPlace | None = None
        while True:
            page = await self._store.read(partial(find, tenant, last))
            yield [each for each in await self._requests(page.found) if each.state == "pending"]
            if page.end is None:
                return
            last = page.end

    async def list_waiting_of(self, tenant: str, sessions: Collection[str]) -> list[ApprovalRequest]:
        """Return the waiting requests of these sessions."""
        query = _QUESTIONS.where(QUESTIONS.c.session.in_(sessions), *_waits_in(tenant))
        return [each for each in await self._requests(await self._read(query)) if each.state == "pending"]

    async def of_turns(
        self, turns: Collection[TurnKey], *, readers: Sequence[str] | None = None
    ) -> dict[TurnKey, list[ApprovalRequest]]:
        """Return all revisions in their present state, oldest first within an approval, without cards.

        A turn without requests has no entry. With `readers`, a turn that concerns none of them has an empty list.
        """
        found: dict[TurnKey, list[ApprovalRequest]] = {}
        if turns and readers is not None:
            found = {key: [] for key, may in (await self._concern(turns, readers)).items() if not may}
            turns = [key for key in turns if key not in found]
        if not turns:
            return found
        # Sort here: for this order SQLite would read every question.
        requests = await self._requests(await self._read(_QUESTIONS.where(_match_name(turns))))
        for request in sorted(requests, key=lambda each: (each.id, each.revision)):
            found.setdefault(TurnKey(request.tenant, request.session, request.turn), []).append(request)
        return found

    async def find_waiting(self, turns: Sequence[TurnKey]) -> set[TurnKey]:
        """Return the turns with a waiting request."""
        key = (QUESTIONS.c.tenant, QUESTIONS.c.session, QUESTIONS.c.turn)
        found: set[TurnKey] = set()
        for first in range(0, len(turns), PIECE):
            query = select(*key).where(_match_name(turns[first : first + PIECE]), *waits())
            found.update(map(TurnKey._make, await self._store.read(partial(_rows, query))))
        return found

    async def of_turn(self, turn: TurnKey) -> TurnRows:
        """Read requests, tickets and freeze in one transaction."""

        def read(connection: Connection) -> tuple[_Found, list[Ticket], Freeze | None]:
            found = _find(_OF_TURN, connection, turn._asdict())
            return found, read_tickets(connection, turn.workflow_id), freeze_of(connection, turn.tenant)

        found, tickets, freeze = await self._store.read(read)
        fresh = [answer_from_row(row) for row in found.answers if row.handed_at is None and row.voided_at is None]
        return TurnRows(await self._requests(found), tickets, freeze, undo_seconds(fresh, found.now))

    async def _concern(self, turns: Collection[TurnKey], readers: Sequence[str]) -> dict[TurnKey, bool]:
        key = (QUESTIONS.c.tenant, QUESTIONS.c.session, QUESTIONS.c.turn)
        query = (
            select(*key, func.max(case((concerns(readers), 1), else_=0)).label("may"))
            .where(_match_name(turns))
            .group_by(*key)
        )
        rows = await self._store.read(lambda connection: connection.execute(query).all())
        return {TurnKey(row.tenant, row.session, row.turn): bool(row.may) for row in rows}

    async def _read(self, query: Select[Any]) -> _Found:
        return await self._store.read(partial(_find, query))

    async def _requests(self, found: _Found) -> list[ApprovalRequest]:
        answers: dict[str, list[Row[Any]]] = {}
        for answer in found.answers:
            answers.setdefault(answer.approval, []).append(answer)
        listed: list[ApprovalRequest] = []
        for first in range(0, len(found.rows), PIECE):
            some = found.rows[first : first + PIECE]
            make = partial(_listed_all, some, answers, found.now)
            listed += make() if len(some) <= _FEW else await self._store.run_in_thread(make)
        return listed


def _rows(query: Select[Any], connection: Connection) -> Sequence[Row[Any]]:
    return connection.execute(query).all()


def _find_waiting(size: int, tenant: str, after: ListPlace | None, connection: Connection) -> _Page:
    order = (QUESTIONS.c.last_at, QUESTIONS.c.approval)
    query = _QUESTIONS.where(*_waits_in(tenant)).order_by(*order).limit(size)
    if after is not None:
        query = query.where(tuple_(*order) > (after.last_at, after.approval))
    rows = connection.execute(query).all()
    return _Page(_with_answers(connection, rows), _place(rows[-1]) if len(rows) == size else None)


def _find_waiting_of(
    readers: Sequence[str], size: int, tenant: str, after: ListPlace | None, connection: Connection
) -> _Page:
    places = find_places(connection, tenant, readers, after, size)
    if not places:
        return _Page(_with_answers(connection, ()), None)
    query = _QUESTIONS.where(QUESTIONS.c.approval.in_([each.approval for each in places]), *_waits_in(tenant))
    found = {_place(row): row for row in connection.execute(query)}
    # A place that is not its question's own was forged.
    rows = [found[place] for place in places if place in found]
    return _Page(_with_answers(connection, rows), places[-1] if len(places) == size else None)


def _place(row: Row[Any]) -> ListPlace:
    return ListPlace(row.last_at, row.approval, row.revision)


def _waits_in(tenant: str) -> Sequence[ColumnElement[bool]]:
    """Some of these rows may be answered, if a worker forged `settled_at`: the caller checks their state."""
    return QUESTIONS.c.tenant == tenant, QUESTIONS.c.settled_at.is_(None), *_OPEN


def waits() -> Sequence[ColumnElement[bool]]:
    """Return the SQL conditions for questions that are not settled, ended, expired or superseded.

    Does not trust `settled_at`.
    """
    settled = select(ANSWERS.c.number).where(
        ANSWERS.c.approval == QUESTIONS.c.approval,
        ANSWERS.c.revision == QUESTIONS.c.revision,
        ANSWERS.c.settles,
        ANSWERS.c.voided_at.is_(None),
    )
    return *_OPEN, ~settled.exists()


def _match_name(turns: Collection[TurnKey]) -> ColumnElement[bool]:
    # SQLite seeks with alternatives, but would read every question for a list of rows.
    key = (QUESTIONS.c.tenant, QUESTIONS.c.session, QUESTIONS.c.turn)
    return or_(*(and_(*(column == value for column, value in zip(key, turn, strict=True))) for turn in turns))


def _find(query: Select[Any], connection: Connection, values: Mapping[str, Any] | None = None) -> _Found:
    return _with_answers(connection, connection.execute(query, values).all())


def _with_answers(connection: Connection, rows: Sequence[Row[Any]]) -> _Found:
    # Without rows no request is built, so the time does not matter.
    now = time_from_millis(rows[0].clock if rows else 0)
    names = list(dict.fromkeys(row.approval for row in rows))
    answers: list[Row[Any]] = []
    for first in range(0, len(names), _NAMES):
        of = ANSWERS.c.approval.in_(names[first : first + _NAMES])
        answers += connection.execute(select(ANSWERS).where(of).order_by(ANSWERS.c.approval, ANSWERS.c.number))
    return _Found(rows, answers, now)


def _listed_all(
    rows: Sequence[Row[Any]], given: Mapping[str, Sequence[Row[Any]]], now: datetime
) -> list[ApprovalRequest]:
    requests = [_build_listed(row, given.get(row.approval, ()), now) for row in rows]
    return [each for each in requests if each is not None]


def _build_listed(row: Row[Any], given: Sequence[Row[Any]], now: datetime) -> ApprovalRequest | None:
    """`None` if a row cannot be read: one bad row must not make the whole list fail."""
    try:
        return request_at(question_from_row(row), [*map(answer_from_row, given)], now)
    except (*UNREADABLE, NotCanonical) as error:
        _log.error("the question %r cannot be read: %s", row.approval, type(error).__name__)
        return None
