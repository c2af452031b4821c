"""What people were asked, and what they answered: the rows that cards, signatures and tools go by.

Whoever runs a workflow can say anything of a call; what is shown, signed or run is read here and recomputed.
"""

import logging
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import ValidationError
from sqlalchemy import Connection, Row, Select, bindparam, func, insert, or_, select, text, tuple_, update

from signoff.approvals.course import StoredAnswer, edit_stands, request_at, request_of
from signoff.approvals.deadlines import last_moment
from signoff.approvals.digest import question_hash
from signoff.contracts.approval import ApprovalRequest, Ending, Question, Vote
from signoff.contracts.canonical import NotCanonical
from signoff.contracts.ids import TurnKey, new_code
from signoff.store.schema import ANSWERS, BLOBS, QUESTIONS, StoreClock
from signoff.store.store import Also, Store
from signoff.store.terms import added, moment

T = TypeVar("T")
_log = logging.getLogger(__name__)
OWED_SECONDS: Final = 5.0
"""How old an answer is before it is handed over by whoever looks; its own gateway does so at once."""
_LOCK: Final = text("SELECT pg_advisory_xact_lock(7310273, hashtext(:approval))")
_ROWS: Final = select(QUESTIONS).where(QUESTIONS.c.approval == bindparam("of")).order_by(QUESTIONS.c.revision)
_ANSWERS: Final = select(ANSWERS).where(ANSWERS.c.approval == bindparam("of")).order_by(ANSWERS.c.number)
_TAKEN: Final = select(QUESTIONS.c.approval).where(
    QUESTIONS.c.tenant == bindparam("of"), QUESTIONS.c.code == bindparam("named")
)


@dataclass(frozen=True)
class ApprovalRows:
    """Everything the store has of one approval, read in one transaction; `now` is the store's clock then (UTC)."""

    questions: tuple[Question, ...]
    answers: tuple[StoredAnswer, ...]
    now: datetime

    @property
    def latest(self) -> Question:
        """The question as it is asked now. There is always one."""
        return self.questions[-1]

    def revision(self, number: int) -> Question | None:
        """The question as it was asked in that revision."""
        return next((each for each in self.questions if each.revision == number), None)

    def request(self, question: Question, at: datetime | None = None) -> ApprovalRequest:
        """What answers and time have made of a question by `at`, or by now; without its card."""
        return request_at(question, self.answers, at or self.now)


class OwedAnswer(NamedTuple):
    """An answer that its turn may not have been given yet."""

    approval: str
    number: int
    vote: Vote


class Touched(NamedTuple):
    """How far an approval has come: its latest revision, and how many answers and endings it has."""

    approval: str
    revision: int
    answers: int
    ended: int


class Questions:
    """The questions and answers in a store. All methods raise `StoreUnavailable` when the database fails."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def ask(
        self, question: Question, declaration: bytes, also: Callable[[Question], Also] | None = None
    ) -> Question | None:
        """Ask a question; returns its row, which has its revision, code and time from the store.

        None for a change of arguments that may not be asked any more: the question it changes is settled or over, or
        was asked anew.

        The same question again, while it is neither answered nor ended, is the same row: an activity may be tried
        twice, and a turn be reset. `declaration` is what `question.definition` is the hash of. `also` is what else is
        written with a new row.
        """

        def write(connection: Connection) -> Question | None:
            lock_approval(connection, question.id)
            rows = read_rows(connection, question.id)
            about = question if rows is None else _proposed(rows, question)
            if rows is not None and _is_same(rows, about):
                return rows.latest
            # Under the lock: whoever says no while a change is judged is heard before it is asked.
            if about.edit_of and (rows is None or not _takes_edit(rows, about)):
                return None
            now: int = connection.execute(select(StoreClock())).scalar_one()
            asked = about.model_copy(
                update={
                    "revision": 1 if rows is None else rows.latest.revision + 1,
                    "code": _free_code(connection, question.tenant) if rows is None else rows.latest.code,
                    "opened_at": moment(now),
                }
            )
            values = {"sha256": question.definition, "size": len(declaration), "body": declaration}
            added(connection, BLOBS, values)
            connection.execute(insert(QUESTIONS), _values(asked, now))
            if also is not None:
                also(asked)(connection)
            return asked

        return await self._store.run(write)

    async def read(self, approval: str) -> ApprovalRows | None:
        """Everything of one approval, or None where nobody was asked."""
        return await self._store.run(lambda connection: read_rows(connection, approval))

    async def locked(self, approval: str, work: Callable[[Connection, ApprovalRows | None], T]) -> T:
        """`work` in a transaction in which no other question or answer of this approval is written."""

        def run(connection: Connection) -> T:
            lock_approval(connection, approval)
            return work(connection, read_rows(connection, approval))

        return await self._store.run(run)

    async def end(self, approval: str, revision: int, ending: Ending) -> bool:
        """Write that a turn asks this no longer; whether it was open. An ending is set once."""
        return await self._store.run(lambda connection: end_question(connection, approval, revision, ending))

    async def by_code(self, tenant: str, code: str) -> str | None:
        """The approval id that a short code means, or None."""
        return await self._store.run(lambda connection: connection.scalar(_TAKEN, {"of": tenant, "named": code}))

    async def waiting(self, tenant: str) -> list[ApprovalRequest]:
        """The requests of a tenant that nobody has answered and that are not over, soonest deadline first; no cards."""
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
        query = (
            select(QUESTIONS)
            .where(
                QUESTIONS.c.tenant == tenant,
                QUESTIONS.c.ended_at.is_(None),
                QUESTIONS.c.last_at >= StoreClock(),
                ~settled.exists(),
                ~newer.exists(),
            )
            .order_by(QUESTIONS.c.last_at)
        )

        found = await self._store.run(lambda connection: _requests(connection, query))
        return [each for each in found if each.state == "pending"]

    async def of_turns(self, turns: Collection[TurnKey]) -> dict[TurnKey, list[ApprovalRequest]]:
        """What turns ask and asked, every revision as it stands now, in one query; no cards. Not of who asked nothing.

        Revisions of one approval come oldest first.
        """
        named = tuple_(QUESTIONS.c.tenant, QUESTIONS.c.session, QUESTIONS.c.turn).in_([tuple(key) for key in turns])
        query = select(QUESTIONS).where(named).order_by(QUESTIONS.c.approval, QUESTIONS.c.revision)
        found: dict[TurnKey, list[ApprovalRequest]] = {}
        for request in await self._store.run(lambda connection: _requests(connection, query)) if turns else ():
            found.setdefault(TurnKey(request.tenant, request.session, request.turn), []).append(request)
        return found

    async def touched(self, since: datetime | None) -> tuple[list[Touched], datetime]:
        """The approvals to which something happened since then, all open ones without a time; and the store's clock."""
        columns = (QUESTIONS.c.approval, func.max(QUESTIONS.c.revision), func.count(QUESTIONS.c.ended_at))
        latest = select(*columns).group_by(QUESTIONS.c.approval)

        def read(connection: Connection) -> tuple[list[Touched], datetime]:
            now: int = connection.execute(select(StoreClock())).scalar_one()
            if since is None:
                open_now = (QUESTIONS.c.ended_at.is_(None), QUESTIONS.c.last_at >= now)
                which: Any = select(QUESTIONS.c.approval).where(*open_now)
            else:
                after = int(since.timestamp() * 1000)
                changed = or_(QUESTIONS.c.opened_at >= after, QUESTIONS.c.ended_at >= after)
                answered = select(ANSWERS.c.approval).where(ANSWERS.c.answered_at >= after)
                which = select(QUESTIONS.c.approval).where(changed).union(answered)
            counting = select(ANSWERS.c.approval, func.count()).group_by(ANSWERS.c.approval)
            answers = connection.execute(counting.where(ANSWERS.c.approval.in_(which))).all()
            given: dict[str, int] = {row[0]: row[1] for row in answers}
            rows = connection.execute(latest.where(QUESTIONS.c.approval.in_(which))).all()
            return [Touched(name, number, given.get(name, 0), ended) for name, number, ended in rows], moment(now)

        return await self._store.run(read)

    async def open_turns(self, opened_before: float, limit: int) -> list[Question]:
        """Questions that nobody has ended, asked so many seconds ago or earlier, oldest first."""
        query = (
            select(QUESTIONS)
            .where(
                QUESTIONS.c.ended_at.is_(None),
                QUESTIONS.c.last_at >= StoreClock(),
                QUESTIONS.c.opened_at <= StoreClock() - int(opened_before * 1000),
            )
            .order_by(QUESTIONS.c.opened_at)
            .limit(limit)
        )
        return await self._store.run(lambda connection: [_question(row) for row in connection.execute(query)])

    async def owed(self, older_than: float, limit: int) -> list[OwedAnswer]:
        """Answers given so many seconds ago or earlier that their turns were not given yet, oldest first."""
        before = StoreClock() - int(older_than * 1000)
        query = (
            select(ANSWERS)
            .where(ANSWERS.c.handed_at.is_(None), ANSWERS.c.voided_at.is_(None), ANSWERS.c.answered_at <= before)
            .order_by(ANSWERS.c.answered_at, ANSWERS.c.approval, ANSWERS.c.number)
            .limit(limit)
        )

        def read(connection: Connection) -> list[OwedAnswer]:
            rows = connection.execute(query).all()
            return [OwedAnswer(row.approval, row.number, Vote.model_validate_json(row.body)) for row in rows]

        return await self._store.run(read)

    async def owe_again(self, waiting: Sequence[tuple[str, int]], older_than: float) -> int:
        """Owe their turns the answers of requests that those say still wait, though answers have settled them.

        `waiting` are approval ids with the revision that waits. A turn that was reset to before an answer has lost it.
        Answers handed over within `older_than` seconds may be on their way; how many are owed again.
        """

        def write(connection: Connection) -> int:
            return sum(_owe_again(connection, approval, revision, older_than) for approval, revision in waiting)

        return await self._store.run(write)

    async def owe_turn(self, turn: TurnKey, older_than: float) -> int:
        """The same for all requests of a turn that waits for something though nothing of it waits here."""
        prefix = f"{'.'.join(turn)}."
        latest = (
            select(QUESTIONS.c.approval, func.max(QUESTIONS.c.revision))
            .where(QUESTIONS.c.approval.startswith(prefix, autoescape=True))
            .group_by(QUESTIONS.c.approval)
        )
        rows = await self._store.run(lambda connection: connection.execute(latest).all())
        return await self.owe_again([(name, revision) for name, revision in rows], older_than)

    async def void(self, approval: str, delivery: str) -> None:
        """Have a yes count for nothing, because its turn did not take it."""
        change = (
            update(ANSWERS)
            .where(ANSWERS.c.approval == approval, ANSWERS.c.delivery == delivery, ANSWERS.c.voided_at.is_(None))
            .values(voided_at=StoreClock())
        )
        await self._store.run(lambda connection: connection.execute(change).close())

    async def hand_over(self, approval: str, delivery: str) -> None:
        """Note that the turn of an approval was given an answer."""
        change = (
            update(ANSWERS)
            .where(ANSWERS.c.approval == approval, ANSWERS.c.delivery == delivery, ANSWERS.c.handed_at.is_(None))
            .values(handed_at=StoreClock())
        )
        await self._store.run(lambda connection: connection.execute(change).close())


def _owe_again(connection: Connection, approval: str, revision: int, older_than: float) -> int:
    ours = (ANSWERS.c.approval == approval, ANSWERS.c.revision == revision)
    settled = select(ANSWERS.c.number).where(*ours, ANSWERS.c.settles, ANSWERS.c.voided_at.is_(None))
    if connection.execute(settled).first() is None:
        return 0
    handed = ANSWERS.c.handed_at <= StoreClock() - int(older_than * 1000)
    return connection.execute(update(ANSWERS).where(*ours, handed).values(handed_at=None)).rowcount


def _requests(connection: Connection, query: Select[Any]) -> list[ApprovalRequest]:
    """The questions that `query` finds, as what answers and time have made of them by now."""
    now = moment(connection.execute(select(StoreClock())).scalar_one())
    rows = connection.execute(query).all()
    given: dict[str, list[StoredAnswer]] = {}
    of = ANSWERS.c.approval.in_(query.with_only_columns(QUESTIONS.c.approval).order_by(None))
    for row in connection.execute(select(ANSWERS).where(of).order_by(ANSWERS.c.number)):
        given.setdefault(row.approval, []).append(_answer(row))
    found = [_listed(row, given.get(row.approval, ()), now) for row in rows]
    return [each for each in found if each is not None]


def lock_approval(connection: Connection, approval: str) -> None:
    """Wait for whoever else writes questions or answers of this approval, and keep others waiting until the end."""
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK, {"approval": approval})
    elif not connection.connection.driver_connection.in_transaction:  # type: ignore[union-attr]
        # SQLite has one writer at a time; without this the first read would fix what is seen before the lock is held.
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def read_rows(connection: Connection, approval: str) -> ApprovalRows | None:
    """Everything of one approval, or None where nobody was asked."""
    questions = tuple(_question(row) for row in connection.execute(_ROWS, {"of": approval}))
    if not questions:
        return None
    answers = tuple(_answer(row) for row in connection.execute(_ANSWERS, {"of": approval}))
    return ApprovalRows(questions, answers, moment(connection.execute(select(StoreClock())).scalar_one()))


def add_answer(connection: Connection, rows: ApprovalRows, vote: Vote, *, settles: bool) -> None:
    """Insert an answer behind those that `rows` has; only within `Questions.locked`."""
    decision = vote.decision
    row = insert(ANSWERS).values(
        approval=decision.approval_id,
        number=max((each.number for each in rows.answers), default=0) + 1,
        revision=decision.revision or 1,
        person_id=vote.subject,
        delivery=decision.delivery_id,
        body=vote.model_dump_json(),
        settles=settles,
        answered_at=StoreClock(),
    )
    connection.execute(row)


def end_question(connection: Connection, approval: str, revision: int, ending: Ending) -> bool:
    """Set the ending of a question, once; whether it was open."""
    change = (
        update(QUESTIONS)
        .where(QUESTIONS.c.approval == approval, QUESTIONS.c.revision == revision, QUESTIONS.c.ended_at.is_(None))
        .values(ended_at=StoreClock(), ended_as=ending)
    )
    return connection.execute(change).rowcount == 1


def end_by_word(connection: Connection, approval: str, revision: int, state: str) -> bool:
    """Write that a turn says how a question ended, where neither answers nor the clock do; whether that was news."""
    rows = read_rows(connection, approval)
    question = None if rows is None else rows.revision(revision)
    if rows is None or question is None or question.ended_at is not None:
        return False
    stored = rows.request(question).state
    if state == stored or (state != "lapsed" and stored != "pending") or state == "timed_out":
        return False
    ending: Ending = "lapsed" if state == "lapsed" else "cancelled" if state == "cancelled" else "unsigned"
    return end_question(connection, approval, revision, ending)


def _proposed(rows: ApprovalRows, question: Question) -> Question:
    """`question` with everybody who changed its arguments in earlier revisions as one who asks."""
    proposers = dict.fromkeys((*rows.latest.proposers, *question.proposers))
    return question.model_copy(update={"proposers": tuple(proposers)})


def _takes_edit(rows: ApprovalRows, question: Question) -> bool:
    """Whether `question` may follow the latest one as a change of its arguments."""
    latest = rows.latest
    waits = latest.ended_at is None and rows.request(latest).state == "pending"
    stands = edit_stands(rows.answers, question.edit_of, question.edit_delivery)
    return waits and stands and latest.revision == question.edit_of


def _is_same(rows: ApprovalRows, question: Question) -> bool:
    latest = rows.latest
    same = question_hash(latest) == question_hash(question.model_copy(update={"revision": latest.revision}))
    if not same or latest.ended_at is not None:
        return False
    # What a change made is asked once, whatever was answered since: its author's yes must not count a second time.
    return question.edit_delivery != "" or rows.request(latest).state == "pending"


def _free_code(connection: Connection, tenant: str) -> str:
    while True:
        code = new_code(secrets.randbelow)
        if connection.scalar(_TAKEN, {"of": tenant, "named": code}) is None:
            return code


def _values(question: Question, now: int) -> dict[str, Any]:
    last = last_moment(request_of(question))
    return {
        "approval": question.id,
        "revision": question.revision,
        "tenant": question.tenant,
        "session": question.session,
        "turn": question.turn,
        "code": question.code,
        "body": question.model_dump_json(exclude={"ended_at", "ended_as"}),
        "opened_at": now,
        "last_at": now if last is None else now + (last - moment(now)) // timedelta(milliseconds=1),
        "ended_at": None,
        "ended_as": None,
    }


def _question(row: Row[Any]) -> Question:
    found = Question.model_validate_json(row.body)
    if row.ended_at is None:
        return found
    return found.model_copy(update={"ended_at": moment(row.ended_at), "ended_as": row.ended_as})


def _listed(row: Row[Any], answers: Sequence[StoredAnswer], now: datetime) -> ApprovalRequest | None:
    """The request of a row; None for one that holds no question, which must not take the list of all others away."""
    try:
        return request_at(_question(row), answers, now)
    except (ValidationError, NotCanonical) as error:
        _log.error("the question %r cannot be read: %s", row.approval, type(error).__name__)
        return None


def _answer(row: Row[Any]) -> StoredAnswer:
    vote, at = Vote.model_validate_json(row.body), moment(row.answered_at)
    return StoredAnswer(row.revision, row.number, vote, at, row.settles, row.voided_at is not None)
