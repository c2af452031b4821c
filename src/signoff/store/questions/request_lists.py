"""Lists the requests that wait in a tenant or belong to turns, as answers and time have made them."""

import logging
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from sqlalchemy import ColumnElement, Connection, Row, Select, and_, bindparam, case, func, or_, select, true, tuple_

from signoff.approvals.request_state import StoredAnswer, request_at, undo_seconds
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.grant import Freeze
from signoff.contracts.ids import TurnKey
from signoff.store.claim_conditions import freeze_of
from signoff.store.questions.approval_rows import answer_from_row, question_from_row
from signoff.store.store import Store
from signoff.store.tables import ANSWERS, QUESTIONS, StoreClock, time_from_millis
from signoff.store.tickets import Ticket, read_tickets

_log = logging.getLogger(__name__)
PIECE: Final = 100
"""Questions that are read at once: who lists many holds up nobody else for longer than these take."""
_FEW: Final = 10
"""So many are read faster than another thread is asked to."""
_NAMES: Final = 500
"""Approvals named in one query for their answers."""
_ENTRIES: Final = 100
"""Approver entries that the database compares."""
_QUESTIONS: Final = select(QUESTIONS, StoreClock().label("clock"))
_OF_TURN: Final = _QUESTIONS.where(
    QUESTIONS.c.tenant == bindparam("tenant"),
    QUESTIONS.c.session == bindparam("session"),
    QUESTIONS.c.turn == bindparam("turn"),
).order_by(QUESTIONS.c.approval, QUESTIONS.c.revision)


class _Found(NamedTuple):
    """Rows of questions that are not parsed yet, the answers to them in their order, and the store's clock then."""

    rows: Sequence[Row[Any]]
    answers: Sequence[Row[Any]]
    now: datetime


class TurnRows(NamedTuple):
    """What the store has of one turn, read in one transaction."""

    requests: list[ApprovalRequest]
    """Its requests, every revision in its present state, without cards; those of one approval oldest first."""
    tickets: list[Ticket]
    """Its tickets, the first claimed first."""
    freeze: Freeze | None
    """The freeze of its tenant, if it is frozen."""
    undo_seconds: float = 0.0
    """Seconds until none of its denials can be undone."""


class RequestLists:
    """Lists the requests in a store, without their cards.

    All methods raise `StoreUnavailable` when the database fails.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_waiting(self, tenant: str, *, sessions: Collection[str] | None = None) -> list[ApprovalRequest]:
        """Returns a tenant's requests that are unanswered and have not ended, soonest deadline first; without cards.

        Only those of `sessions`, when given.
        """
        return [each async for piece in self.iterate_waiting(tenant, sessions=sessions) for each in piece]

    async def iterate_waiting(
        self, tenant: str, *, readers: Collection[str] | None = None, sessions: Collection[str] | None = None
    ) -> AsyncGenerator[list[ApprovalRequest], None]:
        """Yields the requests of `waiting` in pieces; only those that may concern one of `readers`, approver entries,
        when given.

        That is a first selection: whoever shows a request to somebody checks whether they may read it.
        """
        query = _QUESTIONS.where(*_waits_in(tenant), *_match_readers(readers)).limit(PIECE)
        if sessions is not None:
            query = query.where(QUESTIONS.c.session.in_(sessions))
        place = (QUESTIONS.c.last_at, QUESTIONS.c.approval)
        query = query.order_by(*place)
        found = await self._read(query)
        while found.rows:
            yield [each for each in await self._requests(found) if each.state == "pending"]
            if len(found.rows) < PIECE:
                return
            last = found.rows[-1]
            found = await self._read(query.where(tuple_(*place) > (last.last_at, last.approval)))

    async def of_turns(
        self, turns: Collection[TurnKey], *, readers: Collection[str] | None = None
    ) -> dict[TurnKey, list[ApprovalRequest]]:
        """Returns the requests of turns, every revision in its present state, without cards; no entry for a turn
        without any.

        Revisions of one approval come oldest first. Of a turn that may concern none of `readers`, when given, there is
        an empty list.
        """
        found: dict[TurnKey, list[ApprovalRequest]] = {}
        if turns and readers is not None:
            found = {key: [] for key, may in (await self._concern(turns, readers)).items() if not may}
            turns = [key for key in turns if key not in found]
        if not turns:
            return found
        query = _QUESTIONS.where(_match_name(turns)).order_by(QUESTIONS.c.approval, QUESTIONS.c.revision)
        for request in await self._requests(await self._read(query)):
            found.setdefault(TurnKey(request.tenant, request.session, request.turn), []).append(request)
        return found

    async def of_turn(self, turn: TurnKey) -> TurnRows:
        """Reads the requests and tickets of one turn, and the freeze of its tenant at the same time."""

        def read(connection: Connection) -> tuple[_Found, list[Ticket], Freeze | None]:
            found = _find(_OF_TURN, connection, turn._asdict())
            return found, read_tickets(connection, turn.workflow_id), freeze_of(connection, turn.tenant)

        found, tickets, freeze = await self._store.read(read)
        fresh = [answer_from_row(row) for row in found.answers if row.handed_at is None and row.voided_at is None]
        return TurnRows(await self._requests(found), tickets, freeze, undo_seconds(fresh, found.now))

    async def _concern(self, turns: Collection[TurnKey], readers: Collection[str]) -> dict[TurnKey, bool]:
        """Returns, for each turn that asked something, whether that may concern one of `readers`."""
        key = (QUESTIONS.c.tenant, QUESTIONS.c.session, QUESTIONS.c.turn)
        concerns = func.max(case((and_(true(), *_match_readers(readers)), 1), else_=0))
        query = select(*key, concerns.label("may")).where(_match_name(turns)).group_by(*key)
        rows = await self._store.read(lambda connection: connection.execute(query).all())
        return {TurnKey(row.tenant, row.session, row.turn): bool(row.may) for row in rows}

    async def _read(self, query: Select[Any]) -> _Found:
        return await self._store.read(partial(_find, query))

    async def _requests(self, found: _Found) -> list[ApprovalRequest]:
        """Builds the requests of the rows found, in the state that answers and time had made by then; a piece at a
        time.
        """
        given: dict[str, list[Row[Any]]] = {}
        for answer in found.answers:
            given.setdefault(answer.approval, []).append(answer)
        listed: list[ApprovalRequest] = []
        for first in range(0, len(found.rows), PIECE):
            some = found.rows[first : first + PIECE]
            make = partial(_listed_all, some, given, found.now)
            listed += make() if len(some) <= _FEW else await self._store.run_in_thread(make)
        return listed


def _waits_in(tenant: str) -> Sequence[ColumnElement[bool]]:
    """Builds the SQL conditions for a tenant's waiting questions."""
    return QUESTIONS.c.tenant == tenant, *waits()


def waits() -> Sequence[ColumnElement[bool]]:
    """Builds the SQL conditions for questions that wait: neither settled, ended, expired nor asked anew."""
    later = QUESTIONS.alias()
    settled = select(ANSWERS.c.number).where(
        ANSWERS.c.approval == QUESTIONS.c.approval,
        ANSWERS.c.revision == QUESTIONS.c.revision,
        ANSWERS.c.settles,
        ANSWERS.c.voided_at.is_(None),
    )
    newer = select(later.c.revision).where(
        later.c.approval == QUESTIONS.c.approval, later.c.revision > QUESTIONS.c.revision
    )
    return (
        QUESTIONS.c.ended_at.is_(None),
        # Read once, as a query of its own: PostgreSQL looks nothing up by a clock that moves while it looks.
        QUESTIONS.c.last_at >= select(StoreClock()).scalar_subquery(),
        ~settled.exists(),
        ~newer.exists(),
    )


def _match_readers(readers: Collection[str] | None) -> Sequence[ColumnElement[bool]]:
    """Builds the SQL conditions for questions that may concern one of `readers`; for very many entries Python selects
    alone.
    """
    if readers is None or len(readers) > _ENTRIES:
        return ()
    named = (QUESTIONS.c.readers.contains(f"\n{entry}\n", autoescape=True) for entry in readers)
    return (or_(QUESTIONS.c.readers.is_(None), *named),)


def _match_name(turns: Collection[TurnKey]) -> ColumnElement[bool]:
    return tuple_(QUESTIONS.c.tenant, QUESTIONS.c.session, QUESTIONS.c.turn).in_([tuple(key) for key in turns])


def _find(query: Select[Any], connection: Connection, values: Mapping[str, Any] | None = None) -> _Found:
    rows = connection.execute(query, values).all()
    # Of nothing no request is built, at whatever time.
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
    found = [_build_listed(row, [*map(answer_from_row, given.get(row.approval, ()))], now) for row in rows]
    return [each for each in found if each is not None]


def _build_listed(row: Row[Any], answers: Sequence[StoredAnswer], now: datetime) -> ApprovalRequest | None:
    """Builds the request of a row; None for a row that holds no question, which must not take down the list of all
    others.
    """
    try:
        return request_at(question_from_row(row), answers, now)
    except (ValidationError, NotCanonical) as error:
        _log.error("the question %r cannot be read: %s", row.approval, type(error).__name__)
        return None
