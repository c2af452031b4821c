"""Stores the questions for approvers: the rows behind cards, signatures and tools.

A workflow's owner can claim anything about a call. Therefore the values to show, sign or run are read here and
recomputed.
"""

import logging
import secrets
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection, bindparam, func, insert, select, text, tuple_, union, update

from signoff.approvals.deadlines import last_moment
from signoff.approvals.digest import question_hash
from signoff.approvals.earlier_questions import is_asked_still
from signoff.approvals.request_state import edit_stands, request_of
from signoff.contracts.approval import JUDGED_SECONDS, Ending, Question
from signoff.contracts.errors import NotFound, Refused
from signoff.contracts.ids import TurnKey, new_code
from signoff.formats.replace import replace
from signoff.store.blobs import Blob, add_blob
from signoff.store.change_notices import note_change
from signoff.store.claim_conditions import LIVE
from signoff.store.leases import readable
from signoff.store.questions.approval_rows import (
    UNREADABLE,
    ApprovalRows,
    lock_approval,
    question_from_row,
    read_rows,
    read_rows_anew,
)
from signoff.store.questions.question_readers import add_readers, entries_of
from signoff.store.store import Also, Store
from signoff.store.tables import (
    ANSWERS,
    QUESTIONS,
    REQUEST_MESSAGES,
    StoreClock,
    millis_from_time,
    time_from_millis,
)
from signoff.store.tickets import number_of_key

T = TypeVar("T")
_log = logging.getLogger(__name__)
_END: Final = (
    update(QUESTIONS)
    .where(
        QUESTIONS.c.approval == bindparam("of"),
        QUESTIONS.c.revision == bindparam("number"),
        QUESTIONS.c.ended_at.is_(None),
    )
    .values(ended_at=StoreClock(), ended_as=bindparam("how"))
)
_PUT_OFF: Final = update(QUESTIONS).where(
    QUESTIONS.c.approval == bindparam("of"),
    QUESTIONS.c.revision == bindparam("number"),
    QUESTIONS.c.asked_at.is_(None),
    QUESTIONS.c.ended_at.is_(None),
)
_OPEN_OF_TURN: Final = (
    select(QUESTIONS.c.approval, QUESTIONS.c.revision)
    .where(
        QUESTIONS.c.tenant == bindparam("tenant"),
        QUESTIONS.c.session == bindparam("session"),
        QUESTIONS.c.turn == bindparam("turn"),
        QUESTIONS.c.ended_at.is_(None),
        QUESTIONS.c.settled_at.is_(None),
    )
    .order_by(QUESTIONS.c.approval, QUESTIONS.c.revision)
)
_INSERT: Final = insert(QUESTIONS)
_SETTLE: Final = (
    update(QUESTIONS)
    .where(
        QUESTIONS.c.approval == bindparam("of"),
        QUESTIONS.c.revision <= bindparam("up_to"),
        QUESTIONS.c.ended_at.is_(None),
        QUESTIONS.c.settled_at.is_(None),
    )
    .values(settled_at=StoreClock())
)
# SQLite uses the index of codes only if the query repeats its condition word for word.
_TAKEN: Final = select(QUESTIONS.c.approval).where(
    QUESTIONS.c.tenant == bindparam("of"), QUESTIONS.c.code == bindparam("named"), text("revision = 1")
)
_CLOCK: Final = select(StoreClock())
_NAMES: Final = 500
"""Approvals named in one query."""
_PLACE: Final = (QUESTIONS.c.last_at, QUESTIONS.c.approval)
_AFTER: Final = tuple_(*_PLACE) > tuple_(bindparam("last_at"), bindparam("approval"))
_OPEN_AFTER: Final = select(*_PLACE).where(QUESTIONS.c.ended_at.is_(None), _AFTER).order_by(*_PLACE)
_TOUCHED: Final = union(
    select(QUESTIONS.c.approval).where(QUESTIONS.c.opened_at >= bindparam("after")),
    select(QUESTIONS.c.approval).where(QUESTIONS.c.ended_at >= bindparam("after")),
    select(ANSWERS.c.approval).where(ANSWERS.c.answered_at >= bindparam("after")),
    select(REQUEST_MESSAGES.c.approval).where(
        # Each author apart: the index is by author and time.
        REQUEST_MESSAGES.c.author.in_(("agent", "approver")),
        REQUEST_MESSAGES.c.written_at >= bindparam("after"),
    ),
)
_ANSWERED: Final = select(func.count()).where(ANSWERS.c.approval == QUESTIONS.c.approval).scalar_subquery()
_TOLD: Final = select(func.count()).where(REQUEST_MESSAGES.c.approval == QUESTIONS.c.approval).scalar_subquery()
_PROGRESS: Final = (
    select(QUESTIONS.c.approval, func.max(QUESTIONS.c.revision), _ANSWERED, func.count(QUESTIONS.c.ended_at), _TOLD)
    .where(QUESTIONS.c.approval.in_(bindparam("names", expanding=True)))
    .group_by(QUESTIONS.c.approval)
)
# Two writers of questions in one tenant would not see each other's row. Take this lock after the approval's and before
# any write that accompanies the question.
_ASKING: Final = text("SELECT pg_advisory_xact_lock(7310278, hashtext(:tenant))")
_CLOCK_AND_TAKEN: Final = select(StoreClock(), _TAKEN.exists())


class QuestionRefused(Refused):
    """Raised for a question that exceeds its tenant's limit of waiting requests."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} requests of this tenant wait for approvers, which is the limit", "too_many_calls")


class ApprovalProgress(NamedTuple):
    """The progress of an approval."""

    approval: str
    revision: int
    """The latest revision."""
    answers: int
    ended: int
    messages: int


class OpenPlace(NamedTuple):
    """An open question's place among those of all tenants, soonest deadline first."""

    last_at: int
    """The latest time of its deadline, in ms."""
    approval: str


class Questions:
    """Reads and writes the questions in a store. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def ask(
        self,
        question: Question,
        declaration: bytes,
        also: Callable[[Question], Also] | None = None,
        *,
        spent: int = 0,
        since: datetime | None = None,
        waiting: int | None = None,
    ) -> Question | None:
        """Insert a question, and return its row with the revision, code and time set by the store.

        Returns `None` for an edit of a question that is settled, expired or superseded. The same question returns the
        same row while it is neither answered nor ended, because an activity may be retried and a turn reset. A row is
        not reused if its revision is at most `spent`: an answer known only to the turn has used it up. With `since`, a
        row opened at that time or later is reused even if it was answered.

        `declaration` is the text hashed as `question.definition`. `also` is written with a new row. Raises
        `QuestionRefused` if `waiting` other approvals already wait in the tenant.
        """

        def write(connection: Connection) -> Question | None:
            lock_approval(connection, question.id)
            rows = read_rows(connection, question.id)
            about = question if rows is None else _add_proposers(rows, question)
            if rows is not None and rows.latest.revision > spent and _is_same(rows, about, since):
                return rows.latest
            # Check under the lock: a denial that arrives while an edit is judged must count before the edit is asked.
            if about.edit_of and (rows is None or not _takes_edit(rows, about)):
                return None
            if waiting is not None:
                _check_room(connection, question, waiting)
            now, code = _time_and_code(connection, question.tenant, "" if rows is None else rows.latest.code)
            stored = replace(
                about,
                revision=1 if rows is None else rows.latest.revision + 1,
                code=code,
                opened_at=time_from_millis(now),
            )
            if stored.judging_delay > JUDGED_SECONDS:
                # Without a time, every rule that reads one errs on the safe side, here and where the call runs.
                _log.warning(
                    "a call was judged %.0f s off the store's time: check this machine's clock", stored.judging_delay
                )
                stored = replace(stored, judged_at=None)
            add_blob(connection, Blob(question.definition, declaration), None)
            if rows is not None:
                settle_question(connection, stored.id, rows.latest.revision)
            values = _values(stored, now)
            connection.execute(_INSERT, values)
            note_change(connection)
            answerers = () if rows is None else (each.vote.subject for each in rows.answers)
            add_readers(connection, stored, values["last_at"], entries_of(stored, answerers))
            if also is not None:
                also(stored)(connection)
            return stored

        return await self._store.run(write)

    async def read(self, approval: str) -> ApprovalRows | None:
        """Also raises `NotFound` for rows that cannot be read: a worker may have forged them."""

        def read(connection: Connection) -> ApprovalRows | None:
            try:
                return read_rows(connection, approval)
            # Inside the transaction: outside it, any other error looks as if the store were unavailable.
            except UNREADABLE as error:
                _log.error("the request %r cannot be read: %s", approval, type(error).__name__)
                raise NotFound(f"there is no request `{approval}`") from None

        return await self._store.read(read)

    async def run_locked(self, approval: str, work: Callable[[Connection, ApprovalRows | None], T]) -> T:
        """No other writer adds questions or answers to the approval during the transaction."""

        def run(connection: Connection) -> T:
            lock_approval(connection, approval)
            return work(connection, read_rows(connection, approval))

        return await self._store.run(run)

    async def end(self, approval: str, revision: int, ending: Ending) -> bool:
        """Record that a turn no longer waits. Return whether the question was open. An end is set once."""
        return await self._store.run(lambda connection: end_question(connection, approval, revision, ending))

    async def find_by_code(self, tenant: str, code: str) -> str | None:
        return await self._store.read(lambda connection: connection.scalar(_TAKEN, {"of": tenant, "named": code}))

    async def list_changed(self, since: datetime | None) -> tuple[list[ApprovalProgress], datetime]:
        """`None` returns all open approvals. Also returns the store's clock."""
        if since is not None:
            return await self._store.read(partial(_read_touched, int(since.timestamp() * 1000)))
        now: int = await self._store.read(lambda connection: connection.execute(_CLOCK).scalar_one())
        found: list[ApprovalProgress] = []
        place: OpenPlace | None = OpenPlace(now, "")
        # Many may be open: each piece has its own transaction.
        while place is not None:
            piece, place = await self._store.read(partial(_read_open, place))
            found += piece
        return list(dict.fromkeys(found)), time_from_millis(now)

    async def list_overdue(self, after: OpenPlace, limit: int) -> list[OpenPlace]:
        """Return the places after `after` of open approvals whose last deadline has passed."""
        query = _OPEN_AFTER.where(QUESTIONS.c.last_at <= _CLOCK.scalar_subquery()).limit(limit)
        rows = await self._store.read(lambda connection: connection.execute(query, after._asdict()).all())
        return [OpenPlace(*row) for row in rows]

    async def list_unanswered(
        self, asked_before: float, limit: int, after: OpenPlace | None
    ) -> tuple[list[Question], OpenPlace | None]:
        """Return waiting questions asked at least `asked_before` seconds ago, soonest deadline first.

        Also return the last place, or `None` for the last page.
        """
        query = (
            select(QUESTIONS)
            .where(
                QUESTIONS.c.ended_at.is_(None),
                QUESTIONS.c.settled_at.is_(None),
                QUESTIONS.c.last_at >= _CLOCK.scalar_subquery(),
                QUESTIONS.c.opened_at <= _CLOCK.scalar_subquery() - int(asked_before * 1000),
                _AFTER,
            )
            .order_by(*_PLACE)
            .limit(limit)
        )
        values = (after or OpenPlace(0, ""))._asdict()
        rows = await self._store.read(lambda connection: connection.execute(query, values).all())
        end = OpenPlace(rows[-1].last_at, rows[-1].approval) if len(rows) == limit else None
        return readable(rows, question_from_row), end


def _read_touched(after: int, connection: Connection) -> tuple[list[ApprovalProgress], datetime]:
    now: int = connection.execute(_CLOCK).scalar_one()
    touched = connection.scalars(_TOUCHED, {"after": after}).all()
    return _read_progress(connection, touched), time_from_millis(now)


def _read_open(after: OpenPlace, connection: Connection) -> tuple[list[ApprovalProgress], OpenPlace | None]:
    places = [OpenPlace(*row) for row in connection.execute(_OPEN_AFTER.limit(_NAMES), after._asdict())]
    progress = _read_progress(connection, [each.approval for each in places])
    return progress, places[-1] if len(places) == _NAMES else None


def _read_progress(connection: Connection, names: Sequence[str]) -> list[ApprovalProgress]:
    pieces = (names[first : first + _NAMES] for first in range(0, len(names), _NAMES))
    return [ApprovalProgress(*row) for piece in pieces for row in connection.execute(_PROGRESS, {"names": piece})]


def end_question(connection: Connection, approval: str, revision: int, ending: Ending) -> bool:
    """An end is set once. Return whether the question was open."""
    note_change(connection)
    return connection.execute(_END, {"of": approval, "number": revision, "how": ending}).rowcount == 1


def put_off_deadline(connection: Connection, question: Question, asked_at: datetime) -> datetime | None:
    """Move a deadline that is near at an approver's question, once. Return the new one, or `None`.

    Call under the approval's lock.
    """
    if question.asked_at is not None:
        return None
    before, after = (last_moment(request_of(replace(question, asked_at=at))) for at in (None, asked_at))
    if before is None or after is None or after <= before:
        return None
    values = {"asked_at": millis_from_time(asked_at), "last_at": millis_from_time(after)}
    connection.execute(_PUT_OFF, {"of": question.id, "number": question.revision, **values})
    return after


def settle_question(connection: Connection, approval: str, revision: int) -> None:
    """Stop counting this revision and earlier ones among waiting requests."""
    note_change(connection)
    connection.execute(_SETTLE, {"of": approval, "up_to": revision})


def has_begun(connection: Connection, question: Question) -> bool:
    """Return whether the call has begun, or a later attempt than the one with unknown outcome.

    The arguments do not matter, because a call has only one action. Call under the approval's lock, which claimers of
    tickets also take.
    """
    turn = TurnKey(question.tenant, question.session, question.turn).workflow_id
    called = {"of": turn, "named": question.call, "turn": question.requester.nonce}
    return any(number_of_key(key) > question.doubt_of for key in connection.scalars(LIVE, called))


def end_by_turn(
    connection: Connection, approval: str, revision: int, state: str, before: ApprovalRows | None = None
) -> bool:
    """Record a turn's end of a question, if neither answers nor the clock end it.

    Return whether it is new. `before` contains rows read earlier, if any.
    """
    lock_approval(connection, approval)
    rows = read_rows_anew(connection, approval, before)
    question = None if rows is None else rows.revision(revision)
    if rows is None or question is None or question.ended_at is not None:
        return False
    stored = rows.request(question).state
    ending: Ending | None = "lapsed" if state == "lapsed" else "cancelled" if state == "cancelled" else None
    # Ignore a turn's claim that a question was answered: the answers are in the store.
    if ending is None or state == stored:
        return False
    # End the question even under a denial that can be undone: an undo afterwards would leave a request without a turn.
    if stored not in ("pending", "approved") and not rows.undo_seconds:
        return False
    if (ending == "lapsed" or stored == "approved") and has_begun(connection, question):
        return False
    return end_question(connection, approval, revision, ending)


def end_turn_questions(connection: Connection, turn: TurnKey) -> None:
    """For a turn that says it was stopped.

    A turn that is stopped while the gates judge does not learn of the question that they stored.
    """
    for approval, revision in connection.execute(_OPEN_OF_TURN, turn._asdict()).all():
        end_by_turn(connection, approval, revision, "cancelled")


def _add_proposers(rows: ApprovalRows, question: Question) -> Question:
    proposers = dict.fromkeys((*rows.latest.proposers, *question.proposers))
    return replace(question, proposers=tuple(proposers))


def _takes_edit(rows: ApprovalRows, question: Question) -> bool:
    latest = rows.latest
    waits = latest.ended_at is None and rows.request(latest).state == "pending"
    stands = edit_stands(rows.answers, question.edit_of, question.edit_delivery)
    return waits and stands and latest.revision == question.edit_of


def _is_same(rows: ApprovalRows, question: Question, since: datetime | None) -> bool:
    latest = rows.latest
    same = question_hash(latest) == question_hash(replace(question, revision=latest.revision))
    if not same or latest.ended_at is not None:
        return False
    # Ask an edit only once, whatever the answers since: its author's approval must not count twice.
    return question.edit_delivery != "" or is_asked_still(rows.request(latest), since)


def _check_room(connection: Connection, question: Question, limit: int) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(_ASKING, {"tenant": question.tenant})
    others = (
        QUESTIONS.c.tenant == question.tenant,
        QUESTIONS.c.ended_at.is_(None),
        QUESTIONS.c.settled_at.is_(None),
        # Read the clock once in a subquery: PostgreSQL uses no index for a clock that advances during the query.
        QUESTIONS.c.last_at >= select(StoreClock()).scalar_subquery(),
        # The new question replaces any that waits in its own approval.
        QUESTIONS.c.approval != question.id,
    )
    counted = select(QUESTIONS.c.approval).where(*others).limit(limit).subquery()
    if (connection.scalar(select(func.count()).select_from(counted)) or 0) >= limit:
        raise QuestionRefused(limit)


def _time_and_code(connection: Connection, tenant: str, code: str) -> tuple[int, str]:
    """Return the store's clock (ms), and `code` or a new one, unique in the tenant."""
    while True:
        candidate = code or new_code(secrets.randbelow)
        now, taken = connection.execute(_CLOCK_AND_TAKEN, {"of": tenant, "named": candidate}).one()
        if code or not taken:
            return now, candidate


def _values(question: Question, now: int) -> dict[str, Any]:
    last = last_moment(request_of(question))
    return {
        "approval": question.id,
        "revision": question.revision,
        "tenant": question.tenant,
        "session": question.session,
        "turn": question.turn,
        "code": question.code,
        "body": question.model_dump_json(exclude={"asked_at", "ended_at", "ended_as"}),
        "opened_at": now,
        "last_at": now if last is None else now + (last - time_from_millis(now)) // timedelta(milliseconds=1),
        "asked_at": None,
        "ended_at": None,
        "ended_as": None,
        "settled_at": None,
    }
