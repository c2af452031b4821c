"""Finds and removes the rows of turns that ended long ago.

The caller asks the Temporal server whether a turn can still be resumed. The removing transaction checks the rows again,
under the locks of all writers that might add to them.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Table,
    and_,
    delete,
    func,
    or_,
    select,
    tuple_,
    union,
)

from signoff.approvals.digest import question_hash
from signoff.approvals.notifications import DELIVERY_TOPICS, notice_topic
from signoff.contracts.ids import SessionKey, TurnKey, parse_workflow_id
from signoff.contracts.usage import LONGEST
from signoff.store.claim_conditions import hold_call, try_hold_blob
from signoff.store.history.past_requests import remove_past_of
from signoff.store.questions.approval_rows import lock_approval, question_from_row
from signoff.store.tables import (
    ANSWERS,
    BLOB_SESSIONS,
    BLOBS,
    DELIVERIES,
    GRANT_USES,
    GRANTS,
    OPENED_VALUES,
    QUESTION_READERS,
    QUESTIONS,
    RAW_ANSWERS,
    RAW_RECEIPTS,
    REQUEST_MESSAGES,
    TICKETS,
    USES,
    StoreClock,
)

PAGE: Final = 500
"""Rows inspected in one transaction."""
AT_ONCE: Final = 50
"""Grants or blobs removed in one transaction."""
_SETTLED_CARDS: Final = ("closed", "dropped", "failed")
_FIRST: Final = (-1, "")
_APPROVAL: Final = QUESTIONS.c.approval
# A limit counts uses for up to `LONGEST`, even if their turns are gone.
_UNCOUNTED: Final = USES.c.used_at < StoreClock() - round(LONGEST * 1000)


class TurnPage(NamedTuple):
    """A page of old turns, and the start of the next page."""

    turns: tuple[TurnKey, ...]
    """The turns, those with the oldest rows first."""
    end: tuple[int, str] | None
    """The position of the last row inspected, or `None` on the last page."""


class SessionPage(NamedTuple):
    """A page of sessions with old blobs, and the start of the next page."""

    sessions: tuple[SessionKey, ...]
    """The sessions, those with the oldest blobs first."""
    end: tuple[int, str] | None
    """The position of the last row inspected, or `None` on the last page."""


class RemovedRows(NamedTuple):
    """Counts of removed rows."""

    questions: int = 0
    answers: int = 0
    cards: int = 0
    tickets: int = 0
    uses: int = 0
    grants: int = 0
    blobs: int = 0

    def plus(self, other: "RemovedRows") -> "RemovedRows":
        return RemovedRows(*(one + two for one, two in zip(self, other, strict=True)))


def old_turns(connection: Connection, table: Table, before: int, after: tuple[int, str] | None) -> TurnPage:
    """`table` is `QUESTIONS` or `TICKETS`. `before` is in ms, `after` a position."""
    at, name = (TICKETS.c.claimed_at, TICKETS.c.key) if table is TICKETS else (QUESTIONS.c.opened_at, _APPROVAL)
    columns = (TICKETS.c.workflow,) if table is TICKETS else (QUESTIONS.c.tenant, QUESTIONS.c.session, QUESTIONS.c.turn)
    rows = connection.execute(_page(at, name, before, after, *columns)).all()
    keys = [parse_workflow_id(row[2]) if table is TICKETS else TurnKey(*row[2:]) for row in rows]
    return TurnPage(tuple(dict.fromkeys(key for key in keys if key is not None)), _end(rows))


def newest_turns(connection: Connection, limit: int) -> list[TurnKey]:
    """Return the turns of the newest questions and tickets."""
    tickets = select(TICKETS.c.workflow).order_by(TICKETS.c.claimed_at.desc(), TICKETS.c.key.desc()).limit(limit)
    of_tickets = [parse_workflow_id(name) for name in connection.scalars(tickets)]
    columns = (QUESTIONS.c.tenant, QUESTIONS.c.session, QUESTIONS.c.turn)
    asked = select(*columns).order_by(QUESTIONS.c.opened_at.desc(), _APPROVAL.desc()).limit(limit)
    of_questions = [TurnKey(*row) for row in connection.execute(asked)]
    return list(dict.fromkeys(key for key in (*of_questions, *of_tickets) if key is not None))


def is_old(connection: Connection, turn: TurnKey, before: int) -> bool:
    """True if the turn is unchanged since `before`, waits for nothing and is not needed.

    Cards that are still to be closed need its rows. So do grants until they expire, because the turn's questions and
    answers prove them.
    """
    asked = _of_turn(turn)
    approvals = select(QUESTIONS.c.approval).where(asked)
    # A question without an end waits until its last deadline, unless an answer has settled it.
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
            DELIVERIES.c.approval.in_(_topics(asked)),
            or_(DELIVERIES.c.changed_at >= before, DELIVERIES.c.state.not_in(_SETTLED_CARDS)),
        ),
        select(TICKETS.c.key).where(
            TICKETS.c.workflow == turn.workflow_id, _since(before, TICKETS, "claimed_at", "finished_at", "seen_at")
        ),
        select(GRANTS.c.id).where(GRANTS.c.approval_id.in_(approvals), GRANTS.c.expires_at >= before),
    )
    return all(connection.execute(each.limit(1)).first() is None for each in young)


def remove_turn(connection: Connection, turn: TurnKey, before: int) -> RemovedRows:
    """Remove a turn's rows if they are still old, all or none."""
    calls = set(connection.scalars(select(TICKETS.c.call).where(TICKETS.c.workflow == turn.workflow_id)))
    approvals = sorted(set(connection.scalars(select(QUESTIONS.c.approval).where(_of_turn(turn)))))
    # Lock in the order of a claim, the call before its approval. Rows that lock holders are about to add are new, so
    # that the turn is kept.
    for call in sorted(calls):
        hold_call(connection, turn.workflow_id, call)
    for approval in approvals:
        lock_approval(connection, approval)
    # Read the keys under the locks and before checking their age, so that later tickets are not removed.
    of_calls = select(TICKETS.c.key).where(TICKETS.c.workflow == turn.workflow_id, TICKETS.c.call.in_(calls))
    keys = list(connection.scalars(of_calls))
    if not is_old(connection, turn, before):
        return RemovedRows()
    questions = connection.execute(select(QUESTIONS).where(QUESTIONS.c.approval.in_(approvals))).all()
    hashes = [question_hash(question_from_row(row)) for row in questions]
    _delete(connection, OPENED_VALUES, OPENED_VALUES.c.question_hash.in_(hashes))
    topics = [notice_topic(approval, event) for approval in approvals for event in DELIVERY_TOPICS]
    cards = _delete(connection, DELIVERIES, DELIVERIES.c.approval.in_([*approvals, *topics]))
    answers = _delete(connection, ANSWERS, ANSWERS.c.approval.in_(approvals))
    for table in (RAW_ANSWERS, RAW_RECEIPTS, REQUEST_MESSAGES, QUESTION_READERS):
        _delete(connection, table, table.c.approval.in_(approvals))
    remove_past_of(connection, turn)
    _delete(connection, QUESTIONS, QUESTIONS.c.approval.in_(approvals))
    uses = _delete(connection, USES, USES.c.key.in_(keys) & or_(_UNCOUNTED, USES.c.returned_at.is_not(None)))
    tickets = _delete(connection, TICKETS, TICKETS.c.key.in_(keys))
    return RemovedRows(len(questions), answers, cards, tickets, uses)


def count_turn(connection: Connection, turn: TurnKey) -> RemovedRows:
    """Leaves out uses, because some of them are kept."""
    approvals = select(QUESTIONS.c.approval).where(_of_turn(turn))
    return RemovedRows(
        questions=_count(connection, QUESTIONS, _of_turn(turn)),
        answers=_count(connection, ANSWERS, ANSWERS.c.approval.in_(approvals)),
        cards=_count(connection, DELIVERIES, DELIVERIES.c.approval.in_(_topics(_of_turn(turn)))),
        tickets=_count(connection, TICKETS, TICKETS.c.workflow == turn.workflow_id),
    )


def remove_uses(connection: Connection, before: int, *, dry_run: bool) -> RemovedRows:
    """Remove some uses that no limit counts any longer."""
    which = _UNCOUNTED & (USES.c.used_at < before)
    if dry_run:
        return RemovedRows(uses=_count(connection, USES, which))
    old = select(USES.c.key).where(which).order_by(USES.c.used_at).limit(PAGE)
    return RemovedRows(uses=_delete(connection, USES, USES.c.key.in_(old)))


def remove_grants(connection: Connection, before: int, *, dry_run: bool) -> RemovedRows:
    """Remove some grants that expired before `before`, with their uses.

    While a question exists, keeps its grant: delivering its answer again would write the grant again, even if it was
    revoked or used up.
    """
    proved = select(QUESTIONS.c.approval).where(QUESTIONS.c.approval == GRANTS.c.approval_id).exists()
    which = (GRANTS.c.expires_at < before) & ~proved
    if dry_run:
        return RemovedRows(grants=_count(connection, GRANTS, which))
    names = list(connection.scalars(select(GRANTS.c.id).where(which).order_by(GRANTS.c.expires_at).limit(AT_ONCE)))
    _delete(connection, GRANT_USES, GRANT_USES.c.grant_id.in_(names))
    return RemovedRows(grants=_delete(connection, GRANTS, GRANTS.c.id.in_(names)))


def old_sessions(connection: Connection, before: int, after: tuple[int, str] | None) -> SessionPage:
    """Return sessions with a blob last stored before `before` (ms)."""
    at, name = BLOB_SESSIONS.c.kept_at, BLOB_SESSIONS.c.sha256
    columns = (BLOB_SESSIONS.c.tenant, BLOB_SESSIONS.c.session)
    rows = connection.execute(_page(at, name, before, after, *columns)).all()
    # Blobs without a session belong to the store itself and are kept.
    return SessionPage(tuple(dict.fromkeys(SessionKey(*row[2:]) for row in rows if row.session)), _end(rows))


def has_questions(connection: Connection, session: SessionKey) -> bool:
    """Rows of questions may name blobs."""
    asked = select(QUESTIONS.c.approval).where(
        QUESTIONS.c.tenant == session.tenant, QUESTIONS.c.session == session.session
    )
    return connection.execute(asked.limit(1)).first() is not None


def old_blobs(connection: Connection, session: SessionKey, before: int, after: str) -> list[str]:
    """Return some hashes of blobs last stored before `before`."""
    name, at = BLOB_SESSIONS.c.sha256, BLOB_SESSIONS.c.kept_at
    query = select(name).where(*_of_session(session), at < before, name > after).order_by(name).limit(AT_ONCE)
    return list(connection.scalars(query))


def count_blobs(connection: Connection, session: SessionKey, hashes: Sequence[str], before: int) -> RemovedRows:
    """Count the blobs that no other session names, even another old one."""
    other = and_(
        BLOB_SESSIONS.c.sha256 == BLOBS.c.sha256, ~and_(*_of_session(session), BLOB_SESSIONS.c.kept_at < before)
    )
    named = select(BLOB_SESSIONS.c.sha256).where(other).exists()
    return RemovedRows(blobs=_count(connection, BLOBS, BLOBS.c.sha256.in_(hashes), ~named))


def remove_blobs(connection: Connection, session: SessionKey, hashes: Sequence[str], before: int) -> RemovedRows:
    """Remove the session's references, and blobs without other references."""
    removed = 0
    for sha256 in hashes:
        # A transaction is storing it again: it will be new afterwards, and is kept.
        if not try_hold_blob(connection, sha256):
            continue
        named = BLOB_SESSIONS.c.sha256 == sha256
        _delete(connection, BLOB_SESSIONS, named, *_of_session(session), BLOB_SESSIONS.c.kept_at < before)
        if connection.execute(select(BLOB_SESSIONS.c.sha256).where(named).limit(1)).first() is None:
            removed += _delete(connection, BLOBS, BLOBS.c.sha256 == sha256)
    return RemovedRows(blobs=removed)


def _page(at: Any, name: Any, before: int, after: tuple[int, str] | None, *columns: Any) -> Any:
    since, last = after or _FIRST
    # The first condition lets an index on `at` start at the right place.
    later = and_(at >= since, tuple_(at, name) > (since, last))
    return select(at, name, *columns).where(at < before, later).order_by(at, name).limit(PAGE)


def _end(rows: Sequence[Any]) -> tuple[int, str] | None:
    # Revisions share a position. If a page cuts some off, the turn's other rows or the next run find them.
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


def _topics(asked: ColumnElement[bool]) -> CompoundSelect[Any]:
    """Select the approvals of requests, for their cards, and the topics of their notices."""
    topics = (select(QUESTIONS.c.approval + notice_topic("", event)).where(asked) for event in DELIVERY_TOPICS)
    return union(select(QUESTIONS.c.approval).where(asked), *topics)
