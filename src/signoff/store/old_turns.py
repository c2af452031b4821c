"""Finds and removes what turns have left that ended long ago: questions, answers, cards, tickets, uses and blobs.

Whether nobody can come back to a turn is not known here: its caller asks the Temporal server. What is removed is looked
at once more in the transaction that removes it, under the locks of whoever might add to it.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, func, or_, select, tuple_

from signoff.approvals.digest import question_hash
from signoff.contracts.ids import SessionKey, TurnKey, parse_workflow_id
from signoff.contracts.usage import LONGEST
from signoff.store.claim_conditions import hold_call, try_hold_blob
from signoff.store.questions.approval_rows import lock_approval, question_from_row
from signoff.store.tables import (
    ANSWERS,
    BLOB_SESSIONS,
    BLOBS,
    DELIVERIES,
    GRANT_USES,
    GRANTS,
    OPENED_VALUES,
    QUESTIONS,
    RAW_ANSWERS,
    RAW_RECEIPTS,
    TICKETS,
    USES,
    StoreClock,
)

PAGE: Final = 500
"""Rows that are looked at in one transaction."""
AT_ONCE: Final = 50
"""Remembered answers, and blobs, that are removed in one transaction."""
_SETTLED_CARDS: Final = ("closed", "dropped", "failed")
_FIRST: Final = (-1, "")
_APPROVAL: Final = QUESTIONS.c.approval
# A limit counts uses for up to `LONGEST`, whatever became of their turns.
_UNCOUNTED: Final = USES.c.used_at < StoreClock() - round(LONGEST * 1000)


class TurnPage(NamedTuple):
    """Some old turns, and where the next page begins."""

    turns: tuple[TurnKey, ...]
    """The turns, those with the oldest rows first."""
    end: tuple[int, str] | None
    """The place of the last row that was looked at; None where there is no more."""


class SessionPage(NamedTuple):
    """Some sessions with old blobs, and where the next page begins."""

    sessions: tuple[SessionKey, ...]
    """The sessions, those with the oldest blobs first."""
    end: tuple[int, str] | None
    """The place of the last row that was looked at; None where there is no more."""


class RemovedRows(NamedTuple):
    """Counts the rows that were removed."""

    questions: int = 0
    answers: int = 0
    cards: int = 0
    tickets: int = 0
    uses: int = 0
    grants: int = 0
    blobs: int = 0

    def plus(self, other: "RemovedRows") -> "RemovedRows":
        """Returns the sum of both."""
        return RemovedRows(*(one + two for one, two in zip(self, other, strict=True)))


def old_turns(connection: Connection, table: Table, before: int, after: tuple[int, str] | None) -> TurnPage:
    """Returns turns with a row of `table`, `QUESTIONS` or `TICKETS`, that was made before `before` (ms), after a
    place.
    """
    at, name = (TICKETS.c.claimed_at, TICKETS.c.key) if table is TICKETS else (QUESTIONS.c.opened_at, _APPROVAL)
    columns = (TICKETS.c.workflow,) if table is TICKETS else (QUESTIONS.c.tenant, QUESTIONS.c.session, QUESTIONS.c.turn)
    rows = connection.execute(_page(at, name, before, after, *columns)).all()
    found = [parse_workflow_id(row[2]) if table is TICKETS else TurnKey(*row[2:]) for row in rows]
    return TurnPage(tuple(dict.fromkeys(key for key in found if key is not None)), _end(rows))


def newest_turns(connection: Connection, limit: int) -> list[TurnKey]:
    """Returns the turns of the newest questions and tickets."""
    tickets = select(TICKETS.c.workflow).order_by(TICKETS.c.claimed_at.desc(), TICKETS.c.key.desc()).limit(limit)
    of_tickets = [parse_workflow_id(name) for name in connection.scalars(tickets)]
    columns = (QUESTIONS.c.tenant, QUESTIONS.c.session, QUESTIONS.c.turn)
    asked = select(*columns).order_by(QUESTIONS.c.opened_at.desc(), _APPROVAL.desc()).limit(limit)
    of_questions = [TurnKey(*row) for row in connection.execute(asked)]
    return list(dict.fromkeys(key for key in (*of_questions, *of_tickets) if key is not None))


def is_old(connection: Connection, turn: TurnKey, before: int) -> bool:
    """Returns whether nothing was added to a turn since `before`, nothing of it waits, and nothing else needs its rows.

    What needs them are cards that are still to be closed, and remembered answers, which its questions and answers
    prove, until they expire.
    """
    asked = _of_turn(turn)
    approvals = select(QUESTIONS.c.approval).where(asked)
    # Without an ending it waits until its last deadline, unless an answer has settled it.
    settling = select(ANSWERS.c.number).where(
        ANSWERS.c.approval == QUESTIONS.c.approval,
        ANSWERS.c.revision == QUESTIONS.c.revision,
        ANSWERS.c.settles,
        ANSWERS.c.voided_at.is_(None),
    )
    waits = QUESTIONS.c.ended_at.is_(None) & (QUESTIONS.c.last_at >= before) & ~settling.exists()
    young = (
        select(QUESTIONS.c.approval).where(asked, or_(_since(before, QUESTIONS, "opened_at", "ended_at"), waits)),
        select(ANSWERS.c.approval).where(
            ANSWERS.c.approval.in_(approvals), _since(before, ANSWERS, "answered_at", "handed_at", "voided_at")
        ),
        select(DELIVERIES.c.token).where(
            DELIVERIES.c.approval.in_(approvals),
            or_(DELIVERIES.c.changed_at >= before, DELIVERIES.c.state.not_in(_SETTLED_CARDS)),
        ),
        select(TICKETS.c.key).where(
            TICKETS.c.workflow == turn.workflow_id, _since(before, TICKETS, "claimed_at", "finished_at", "seen_at")
        ),
        select(GRANTS.c.id).where(GRANTS.c.approval_id.in_(approvals), GRANTS.c.expires_at >= before),
    )
    return all(connection.execute(each.limit(1)).first() is None for each in young)


def remove_turn(connection: Connection, turn: TurnKey, before: int) -> RemovedRows:
    """Removes a turn's rows where they are old by now, all or none."""
    calls = set(connection.scalars(select(TICKETS.c.call).where(TICKETS.c.workflow == turn.workflow_id)))
    approvals = sorted(set(connection.scalars(select(QUESTIONS.c.approval).where(_of_turn(turn)))))
    # In the order of a claim: first the call, then its approval. What they are about to add is young, and keeps all.
    for call in sorted(calls):
        hold_call(connection, turn.workflow_id, call)
    for approval in approvals:
        lock_approval(connection, approval)
    # By their keys, read under the locks and before it is asked how old they are: what comes later is not among them.
    of_calls = select(TICKETS.c.key).where(TICKETS.c.workflow == turn.workflow_id, TICKETS.c.call.in_(calls))
    keys = list(connection.scalars(of_calls))
    if not is_old(connection, turn, before):
        return RemovedRows()
    questions = connection.execute(select(QUESTIONS).where(QUESTIONS.c.approval.in_(approvals))).all()
    hashes = [question_hash(question_from_row(row)) for row in questions]
    _delete(connection, OPENED_VALUES, OPENED_VALUES.c.question_hash.in_(hashes))
    cards = _delete(connection, DELIVERIES, DELIVERIES.c.approval.in_(approvals))
    answers = _delete(connection, ANSWERS, ANSWERS.c.approval.in_(approvals))
    for table in (RAW_ANSWERS, RAW_RECEIPTS):
        _delete(connection, table, table.c.approval.in_(approvals))
    _delete(connection, QUESTIONS, QUESTIONS.c.approval.in_(approvals))
    uses = _delete(connection, USES, USES.c.key.in_(keys) & or_(_UNCOUNTED, USES.c.returned_at.is_not(None)))
    tickets = _delete(connection, TICKETS, TICKETS.c.key.in_(keys))
    return RemovedRows(len(questions), answers, cards, tickets, uses)


def count_turn(connection: Connection, turn: TurnKey) -> RemovedRows:
    """Counts a turn's rows, without its uses, of which some stay."""
    approvals = select(QUESTIONS.c.approval).where(_of_turn(turn))
    return RemovedRows(
        questions=_count(connection, QUESTIONS, _of_turn(turn)),
        answers=_count(connection, ANSWERS, ANSWERS.c.approval.in_(approvals)),
        cards=_count(connection, DELIVERIES, DELIVERIES.c.approval.in_(approvals)),
        tickets=_count(connection, TICKETS, TICKETS.c.workflow == turn.workflow_id),
    )


def remove_uses(connection: Connection, before: int, *, dry_run: bool) -> RemovedRows:
    """Removes some uses of limited tools that no limit counts any more."""
    which = _UNCOUNTED & (USES.c.used_at < before)
    if dry_run:
        return RemovedRows(uses=_count(connection, USES, which))
    old = select(USES.c.key).where(which).order_by(USES.c.used_at).limit(PAGE)
    return RemovedRows(uses=_delete(connection, USES, USES.c.key.in_(old)))


def remove_grants(connection: Connection, before: int, *, dry_run: bool) -> RemovedRows:
    """Removes some remembered answers that expired before `before` and their uses, once their questions are gone.

    A question whose answer is handed over again would write its remembered answer anew, revoked or used up or not.
    """
    proved = select(QUESTIONS.c.approval).where(QUESTIONS.c.approval == GRANTS.c.approval_id).exists()
    which = (GRANTS.c.expires_at < before) & ~proved
    if dry_run:
        return RemovedRows(grants=_count(connection, GRANTS, which))
    names = list(connection.scalars(select(GRANTS.c.id).where(which).order_by(GRANTS.c.expires_at).limit(AT_ONCE)))
    _delete(connection, GRANT_USES, GRANT_USES.c.grant_id.in_(names))
    return RemovedRows(grants=_delete(connection, GRANTS, GRANTS.c.id.in_(names)))


def old_sessions(connection: Connection, before: int, after: tuple[int, str] | None) -> SessionPage:
    """Returns sessions for which a blob was last kept before `before` (ms), after a place."""
    at, name = BLOB_SESSIONS.c.kept_at, BLOB_SESSIONS.c.sha256
    columns = (BLOB_SESSIONS.c.tenant, BLOB_SESSIONS.c.session)
    rows = connection.execute(_page(at, name, before, after, *columns)).all()
    # Without a session it is the store's own, and stays.
    return SessionPage(tuple(dict.fromkeys(SessionKey(*row[2:]) for row in rows if row.session)), _end(rows))


def has_questions(connection: Connection, session: SessionKey) -> bool:
    """Returns whether a row of a session's turns may name a blob."""
    asked = select(QUESTIONS.c.approval).where(
        QUESTIONS.c.tenant == session.tenant, QUESTIONS.c.session == session.session
    )
    return connection.execute(asked.limit(1)).first() is not None


def old_blobs(connection: Connection, session: SessionKey, before: int, after: str) -> list[str]:
    """Returns some hashes, those after `after`, of the blobs that were last kept for a session before `before`."""
    name, at = BLOB_SESSIONS.c.sha256, BLOB_SESSIONS.c.kept_at
    query = select(name).where(*_of_session(session), at < before, name > after).order_by(name).limit(AT_ONCE)
    return list(connection.scalars(query))


def count_blobs(connection: Connection, session: SessionKey, hashes: Sequence[str], before: int) -> RemovedRows:
    """Counts those of the blobs that no other session names; what several old ones share is counted with none."""
    other = and_(
        BLOB_SESSIONS.c.sha256 == BLOBS.c.sha256, ~and_(*_of_session(session), BLOB_SESSIONS.c.kept_at < before)
    )
    named = select(BLOB_SESSIONS.c.sha256).where(other).exists()
    return RemovedRows(blobs=_count(connection, BLOBS, BLOBS.c.sha256.in_(hashes), ~named))


def remove_blobs(connection: Connection, session: SessionKey, hashes: Sequence[str], before: int) -> RemovedRows:
    """Forgets that a session names these blobs, and removes those that no other one names."""
    removed = 0
    for sha256 in hashes:
        # Whoever keeps it just now needs it: it is young when this is done, and stays.
        if not try_hold_blob(connection, sha256):
            continue
        named = BLOB_SESSIONS.c.sha256 == sha256
        _delete(connection, BLOB_SESSIONS, named, *_of_session(session), BLOB_SESSIONS.c.kept_at < before)
        if connection.execute(select(BLOB_SESSIONS.c.sha256).where(named).limit(1)).first() is None:
            removed += _delete(connection, BLOBS, BLOBS.c.sha256 == sha256)
    return RemovedRows(blobs=removed)


def _page(at: Any, name: Any, before: int, after: tuple[int, str] | None, *columns: Any) -> Any:
    since, last = after or _FIRST
    # The first condition says to an index of `at` where it begins.
    later = and_(at >= since, tuple_(at, name) > (since, last))
    return select(at, name, *columns).where(at < before, later).order_by(at, name).limit(PAGE)


def _end(rows: Sequence[Any]) -> tuple[int, str] | None:
    # A row has the place of its revisions: what a page cuts off is found again by the turn's other rows, or next time.
    return (rows[-1][0], rows[-1][1]) if len(rows) == PAGE else None


def _of_turn(turn: TurnKey) -> ColumnElement[bool]:
    return and_(QUESTIONS.c.tenant == turn.tenant, QUESTIONS.c.session == turn.session, QUESTIONS.c.turn == turn.turn)


def _of_session(session: SessionKey) -> tuple[ColumnElement[bool], ...]:
    return BLOB_SESSIONS.c.tenant == session.tenant, BLOB_SESSIONS.c.session == session.session


def _since(before: int, table: Table, *names: str) -> ColumnElement[bool]:
    return or_(*(table.c[name] >= before for name in names))


def _count(connection: Connection, table: Table, *which: ColumnElement[bool]) -> int:
    return connection.scalar(select(func.count()).select_from(table).where(*which)) or 0


def _delete(connection: Connection, table: Table, *which: ColumnElement[bool]) -> int:
    return connection.execute(delete(table).where(*which)).rowcount
