"""Stores what people were asked and what they answered: the rows that cards, signatures and tools go by.

Whoever runs a workflow can claim anything of a call; what is shown, signed or run is read here and recomputed.
"""

import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import ValidationError
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    case,
    func,
    insert,
    or_,
    select,
    text,
    true,
    tuple_,
    update,
)

from signoff.approvals.deadlines import last_moment
from signoff.approvals.digest import question_hash
from signoff.approvals.earlier_questions import is_asked_still
from signoff.approvals.request_state import StoredAnswer, edit_stands, request_at, request_of
from signoff.contracts.approval import JUDGED_SECONDS, ApprovalRequest, Ending, Question, Vote
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.grant import Freeze
from signoff.contracts.ids import TurnKey, new_code
from signoff.store.claim_conditions import LIVE, freeze_of, insert_new
from signoff.store.store import Also, Store
from signoff.store.tables import ANSWERS, BLOBS, QUESTIONS, StoreClock, time_from_millis
from signoff.store.tickets import number_of_key

T = TypeVar("T")
_log = logging.getLogger(__name__)
OWED_SECONDS: Final = 5.0
"""How old an answer is before it is handed over by whoever looks; its own gateway does so at once."""
PIECE: Final = 100
"""Questions that are read at once: who lists many holds up nobody else for longer than these take."""
_FEW: Final = 10
"""So many are read faster than another thread is asked to."""
_NAMES: Final = 500
"""Approvals named in one query for their answers."""
_ENTRIES: Final = 100
"""Approver entries that the database compares."""
_LOCK: Final = text("SELECT pg_advisory_xact_lock(7310275, hashtext(:approval))")
_ROWS: Final = (
    select(QUESTIONS, StoreClock().label("clock"))
    .where(QUESTIONS.c.approval == bindparam("of"))
    .order_by(QUESTIONS.c.revision)
)
_ANSWERS: Final = select(ANSWERS).where(ANSWERS.c.approval == bindparam("of")).order_by(ANSWERS.c.number)
_COUNTS: Final = select(
    *(
        select(func.count(column)).where(table.c.approval == bindparam("of")).scalar_subquery()
        for table, column in (
            (QUESTIONS, QUESTIONS.c.revision),
            (QUESTIONS, QUESTIONS.c.ended_at),
            (ANSWERS, ANSWERS.c.number),
            (ANSWERS, ANSWERS.c.voided_at),
        )
    )
)
_BROUGHT: Final = select(ANSWERS.c.body).where(
    ANSWERS.c.approval == bindparam("of"), ANSWERS.c.delivery == bindparam("by")
)
_END: Final = (
    update(QUESTIONS)
    .where(
        QUESTIONS.c.approval == bindparam("of"),
        QUESTIONS.c.revision == bindparam("number"),
        QUESTIONS.c.ended_at.is_(None),
    )
    .values(ended_at=StoreClock(), ended_as=bindparam("how"))
)
_OF_TURN: Final = (
    select(QUESTIONS)
    .where(
        QUESTIONS.c.tenant == bindparam("tenant"),
        QUESTIONS.c.session == bindparam("session"),
        QUESTIONS.c.turn == bindparam("turn"),
    )
    .order_by(QUESTIONS.c.approval, QUESTIONS.c.revision)
)
_INSERT: Final = insert(QUESTIONS)
_CLOCK: Final = select(StoreClock())
_TAKEN: Final = select(QUESTIONS.c.approval).where(
    QUESTIONS.c.tenant == bindparam("of"), QUESTIONS.c.code == bindparam("named")
)


@dataclass(frozen=True)
class ApprovalRows:
    """All rows of one approval, read in one transaction."""

    questions: tuple[Question, ...]
    """The question in each of its revisions, oldest first."""
    answers: tuple[StoredAnswer, ...]
    """The answers, in the order in which they were stored."""
    now: datetime
    """The store's clock when the rows were read, in UTC."""
    _made: dict[int, ApprovalRequest] = field(default_factory=dict, compare=False, repr=False)
    """By the number of the revision, as each is asked for several times and its hash takes a while."""

    @property
    def latest(self) -> Question:
        """Returns the question as it is asked now. There is always one."""
        return self.questions[-1]

    def revision(self, number: int) -> Question | None:
        """Returns the question as it was asked in that revision, or None."""
        return next((each for each in self.questions if each.revision == number), None)

    def request(self, question: Question, at: datetime | None = None) -> ApprovalRequest:
        """Builds the request of a question: its state by `at`, or by now, under its answers; without its card."""
        if at is not None or self.revision(question.revision) is not question:
            return request_at(question, self.answers, at or self.now)
        if question.revision not in self._made:
            self._made[question.revision] = request_at(question, self.answers, self.now)
        return self._made[question.revision]

    @property
    def counts(self) -> "RowCounts":
        """Returns how many rows there are, and how many of them have ended."""
        ended = sum(each.ended_at is not None for each in self.questions)
        return RowCounts(len(self.questions), ended, len(self.answers), sum(each.void for each in self.answers))


class RowCounts(NamedTuple):
    """Counts the rows of one approval. A row changes only once, by its end: the same counts are the same rows."""

    questions: int
    """How many questions there are."""
    ended: int
    """How many of the questions have ended."""
    answers: int
    """How many answers there are."""
    void: int
    """How many of the answers are void."""


class OwedAnswer(NamedTuple):
    """An answer that its turn may not have been given yet."""

    approval: str
    """The approval id."""
    number: int
    """The number of the answer within its approval."""
    vote: Vote
    """The answer."""


class ApprovalProgress(NamedTuple):
    """How far an approval has come."""

    approval: str
    """The approval id."""
    revision: int
    """Its latest revision."""
    answers: int
    """How many answers it has."""
    ended: int
    """How many of its questions have ended."""


class _Found(NamedTuple):
    """Rows of questions that are not parsed yet, the answers to them in their order, and the store's clock then."""

    rows: Sequence[Row[Any]]
    answers: Sequence[Row[Any]]
    now: datetime


class Questions:
    """Reads and writes the questions and answers in a store.

    All methods raise `StoreUnavailable` when the database fails.
    """

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
    ) -> Question | None:
        """Inserts a question; returns its row, which has its revision, code and time from the store.

        Returns None for a change of arguments that may not be asked any more: the question it changes is settled, has
        expired, or was asked anew.

        The same question again, while it is neither answered nor ended, is the same row: an activity may be tried
        twice, and a turn be reset. It is not the same row where its revision is `spent`: an answer that only the turn
        knows has been used up by then. A question asked at `since` or later is the same row also where it was answered.
        `declaration` is the text whose hash is `question.definition`. `also` is written with a new row.
        """

        def write(connection: Connection) -> Question | None:
            lock_approval(connection, question.id)
            rows = read_rows(connection, question.id)
            about = question if rows is None else _proposed(rows, question)
            if rows is not None and rows.latest.revision > spent and _is_same(rows, about, since):
                return rows.latest
            # Under the lock: whoever says no while a change is judged is heard before it is asked.
            if about.edit_of and (rows is None or not _takes_edit(rows, about)):
                return None
            now: int = connection.execute(_CLOCK).scalar_one()
            asked = about.model_copy(
                update={
                    "revision": 1 if rows is None else rows.latest.revision + 1,
                    "code": _free_code(connection, question.tenant) if rows is None else rows.latest.code,
                    "opened_at": time_from_millis(now),
                }
            )
            if asked.judging_delay > JUDGED_SECONDS:
                # Without an instant every rule that reads one errs on the safe side, there and where the call runs.
                _log.warning("a call was judged %.0f s from the store's time: set this clock", asked.judging_delay)
                asked = asked.model_copy(update={"judged_at": None})
            values = {"sha256": question.definition, "size": len(declaration), "body": declaration}
            insert_new(connection, BLOBS, values)
            connection.execute(_INSERT, _values(asked, now))
            if also is not None:
                also(asked)(connection)
            return asked

        return await self._store.run(write)

    async def read(self, approval: str) -> ApprovalRows | None:
        """Returns all rows of one approval, or None where nobody was asked."""
        return await self._store.run(lambda connection: read_rows(connection, approval))

    async def votes_of(self, approval: str, delivery: str) -> list[Vote]:
        """Returns the votes that one delivery has brought to an approval; none for a delivery without an id."""
        if not delivery:
            return []
        brought = {"of": approval, "by": delivery}
        bodies = await self._store.run(lambda connection: connection.scalars(_BROUGHT, brought).all())
        return [Vote.model_validate_json(body) for body in bodies]

    async def run_locked(self, approval: str, work: Callable[[Connection, ApprovalRows | None], T]) -> T:
        """Runs `work` in a transaction in which no other question or answer of this approval is written."""

        def run(connection: Connection) -> T:
            lock_approval(connection, approval)
            return work(connection, read_rows(connection, approval))

        return await self._store.run(run)

    async def end(self, approval: str, revision: int, ending: Ending) -> bool:
        """Records that a turn no longer asks this question; returns whether it was open. An ending is set once."""
        return await self._store.run(lambda connection: end_question(connection, approval, revision, ending))

    async def find_by_code(self, tenant: str, code: str) -> str | None:
        """Returns the approval id of a short code, or None."""
        return await self._store.run(lambda connection: connection.scalar(_TAKEN, {"of": tenant, "named": code}))

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
        query = select(QUESTIONS).where(*_waits(tenant), *_concerning(readers)).limit(PIECE)
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
        query = select(QUESTIONS).where(_named(turns)).order_by(QUESTIONS.c.approval, QUESTIONS.c.revision)
        for request in await self._requests(await self._read(query)):
            found.setdefault(TurnKey(request.tenant, request.session, request.turn), []).append(request)
        return found

    async def of_turn(self, turn: TurnKey) -> tuple[list[ApprovalRequest], Freeze | None]:
        """Returns the requests of one turn as `of_turns` does, and the freeze of its tenant at the same time."""
        found, freeze = await self._store.run(partial(_found_of_turn, turn))
        return await self._requests(found), freeze

    async def _concern(self, turns: Collection[TurnKey], readers: Collection[str]) -> dict[TurnKey, bool]:
        """Returns, for each turn that asked something, whether that may concern one of `readers`."""
        key = (QUESTIONS.c.tenant, QUESTIONS.c.session, QUESTIONS.c.turn)
        concerns = func.max(case((and_(true(), *_concerning(readers)), 1), else_=0))
        query = select(*key, concerns.label("may")).where(_named(turns)).group_by(*key)
        rows = await self._store.run(lambda connection: connection.execute(query).all())
        return {TurnKey(row.tenant, row.session, row.turn): bool(row.may) for row in rows}

    async def _read(self, query: Select[Any]) -> _Found:
        return await self._store.run(partial(_found, query))

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

    async def list_changed(self, since: datetime | None) -> tuple[list[ApprovalProgress], datetime]:
        """Returns the approvals to which something happened since then, or without a time all open ones; and the
        store's clock.
        """
        columns = (QUESTIONS.c.approval, func.max(QUESTIONS.c.revision), func.count(QUESTIONS.c.ended_at))
        latest = select(*columns).group_by(QUESTIONS.c.approval)

        def read(connection: Connection) -> tuple[list[ApprovalProgress], datetime]:
            now: int = connection.execute(_CLOCK).scalar_one()
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
            return [
                ApprovalProgress(name, number, given.get(name, 0), ended) for name, number, ended in rows
            ], time_from_millis(now)

        return await self._store.run(read)

    async def open_turns(self, opened_before: float, limit: int) -> list[Question]:
        """Returns questions without an ending that were asked so many seconds ago or earlier, oldest first."""
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

    async def list_owed(self, older_than: float, limit: int) -> list[OwedAnswer]:
        """Returns answers given so many seconds ago or earlier that their turns were not given yet, oldest first."""
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
        """Marks answers as owed again where a turn still waits though its answers have settled the request; returns how
        many.

        `waiting` are approval ids with the revision that waits. A turn that was reset to before an answer has lost it.
        Answers handed over within `older_than` seconds may be on their way, and are left out.
        """

        def write(connection: Connection) -> int:
            return sum(_owe_again(connection, approval, revision, older_than) for approval, revision in waiting)

        return await self._store.run(write)

    async def owe_turn(self, turn: TurnKey, older_than: float) -> int:
        """Marks the answers of a turn as owed again where it waits for something though nothing of it waits in the
        store.
        """
        prefix = f"{'.'.join(turn)}."
        latest = (
            select(QUESTIONS.c.approval, func.max(QUESTIONS.c.revision))
            .where(QUESTIONS.c.approval.startswith(prefix, autoescape=True))
            .group_by(QUESTIONS.c.approval)
        )
        rows = await self._store.run(lambda connection: connection.execute(latest).all())
        return await self.owe_again([(name, revision) for name, revision in rows], older_than)

    async def void(self, approval: str, delivery: str) -> bool:
        """Voids a yes that its turn did not take; returns False where it stands because its call has begun.

        A turn that has begun a call on a yes has taken it, whatever is said in its name later.
        """
        ours = (ANSWERS.c.approval == approval, ANSWERS.c.delivery == delivery)
        change = update(ANSWERS).where(*ours, ANSWERS.c.voided_at.is_(None)).values(voided_at=StoreClock())

        def write(connection: Connection, rows: ApprovalRows | None) -> bool:
            numbers = connection.scalars(select(ANSWERS.c.revision).where(*ours)).all()
            asked = [each for each in (() if rows is None else rows.questions) if each.revision in numbers]
            if any(has_begun(connection, each) for each in asked):
                return False
            connection.execute(change)
            return True

        return await self.run_locked(approval, write)

    async def hand_over(self, approval: str, delivery: str) -> None:
        """Records that the turn of an approval was given an answer."""
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


def _waits(tenant: str) -> Sequence[ColumnElement[bool]]:
    """Builds the SQL conditions for a tenant's waiting questions: neither settled, ended, expired nor asked anew."""
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
        QUESTIONS.c.tenant == tenant,
        QUESTIONS.c.ended_at.is_(None),
        QUESTIONS.c.last_at >= StoreClock(),
        ~settled.exists(),
        ~newer.exists(),
    )


def _concerning(readers: Collection[str] | None) -> Sequence[ColumnElement[bool]]:
    """Builds the SQL conditions for questions that may concern one of `readers`; for very many entries Python selects
    alone.
    """
    if readers is None or len(readers) > _ENTRIES:
        return ()
    named = (QUESTIONS.c.readers.contains(f"\n{entry}\n", autoescape=True) for entry in readers)
    return (or_(QUESTIONS.c.readers.is_(None), *named),)


def _named(turns: Collection[TurnKey]) -> ColumnElement[bool]:
    return tuple_(QUESTIONS.c.tenant, QUESTIONS.c.session, QUESTIONS.c.turn).in_([tuple(key) for key in turns])


def _found_of_turn(turn: TurnKey, connection: Connection) -> tuple[_Found, Freeze | None]:
    return _found(_OF_TURN, connection, turn._asdict()), freeze_of(connection, turn.tenant)


def _found(query: Select[Any], connection: Connection, values: Mapping[str, Any] | None = None) -> _Found:
    now = time_from_millis(connection.execute(_CLOCK).scalar_one())
    rows = connection.execute(query, values).all()
    names = list(dict.fromkeys(row.approval for row in rows))
    answers: list[Row[Any]] = []
    for first in range(0, len(names), _NAMES):
        of = ANSWERS.c.approval.in_(names[first : first + _NAMES])
        answers += connection.execute(select(ANSWERS).where(of).order_by(ANSWERS.c.approval, ANSWERS.c.number))
    return _Found(rows, answers, now)


def _listed_all(
    rows: Sequence[Row[Any]], given: Mapping[str, Sequence[Row[Any]]], now: datetime
) -> list[ApprovalRequest]:
    found = [_listed(row, [*map(_answer, given.get(row.approval, ()))], now) for row in rows]
    return [each for each in found if each is not None]


def lock_approval(connection: Connection, approval: str) -> None:
    """Locks an approval until the transaction ends: others that write its questions or answers are awaited, then kept
    waiting.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK, {"approval": approval})
    elif not connection.connection.driver_connection.in_transaction:  # type: ignore[union-attr]
        # SQLite has one writer at a time; without this the first read would fix what is seen before the lock is held.
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def read_rows(connection: Connection, approval: str) -> ApprovalRows | None:
    """Returns all rows of one approval, or None where nobody was asked."""
    found = connection.execute(_ROWS, {"of": approval}).all()
    if not found:
        return None
    questions = tuple(map(_question, found))
    answers = tuple(_answer(row) for row in connection.execute(_ANSWERS, {"of": approval}))
    return ApprovalRows(questions, answers, time_from_millis(found[0].clock))


def read_rows_anew(connection: Connection, approval: str, before: ApprovalRows | None) -> ApprovalRows | None:
    """Returns all rows of one approval; `before`, which was read of it earlier, where nothing has come since.

    Counting takes a fraction of the time of reading. Called under the lock of the approval.
    """
    if before is not None and before.counts == RowCounts(*connection.execute(_COUNTS, {"of": approval}).one()):
        return before
    return read_rows(connection, approval)


def add_answer(connection: Connection, rows: ApprovalRows, vote: Vote, *, settles: bool) -> None:
    """Inserts an answer after those that `rows` has; only within `Questions.run_locked`."""
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
    """Sets the ending of a question, once; returns whether it was open."""
    return connection.execute(_END, {"of": approval, "number": revision, "how": ending}).rowcount == 1


def has_begun(connection: Connection, question: Question) -> bool:
    """Returns whether the action that a question is about was begun or done: its call, or the attempt that it asks
    about.

    The arguments do not matter: beside one action of a call no other is begun. Called under the lock of the approval,
    which whoever claims a ticket takes as well.
    """
    turn = TurnKey(question.tenant, question.session, question.turn).workflow_id
    called = {"of": turn, "named": question.call, "turn": question.requester.nonce}
    return any(number_of_key(key) > question.doubt_of for key in connection.scalars(LIVE, called))


def end_by_turn(
    connection: Connection, approval: str, revision: int, state: str, before: ApprovalRows | None = None
) -> bool:
    """Records a turn's word for how a question ended, where neither answers nor the clock end it; returns whether that
    was new.

    `before` is what was read of the approval earlier, if anything.
    """
    lock_approval(connection, approval)
    rows = read_rows_anew(connection, approval, before)
    question = None if rows is None else rows.revision(revision)
    if rows is None or question is None or question.ended_at is not None:
        return False
    stored = rows.request(question).state
    if state == stored or (state != "lapsed" and stored != "pending") or state == "timed_out":
        return False
    ending: Ending = "lapsed" if state == "lapsed" else "cancelled" if state == "cancelled" else "unsigned"
    if ending == "lapsed" and has_begun(connection, question):
        return False
    return end_question(connection, approval, revision, ending)


def _proposed(rows: ApprovalRows, question: Question) -> Question:
    """Returns `question` with everybody who changed its arguments in earlier revisions among its requesters."""
    proposers = dict.fromkeys((*rows.latest.proposers, *question.proposers))
    return question.model_copy(update={"proposers": tuple(proposers)})


def _takes_edit(rows: ApprovalRows, question: Question) -> bool:
    """Returns whether `question` may follow the latest one as a change of its arguments."""
    latest = rows.latest
    waits = latest.ended_at is None and rows.request(latest).state == "pending"
    stands = edit_stands(rows.answers, question.edit_of, question.edit_delivery)
    return waits and stands and latest.revision == question.edit_of


def _is_same(rows: ApprovalRows, question: Question, since: datetime | None) -> bool:
    latest = rows.latest
    same = question_hash(latest) == question_hash(question.model_copy(update={"revision": latest.revision}))
    if not same or latest.ended_at is not None:
        return False
    # What a change made is asked once, whatever was answered since: its author's yes must not count a second time.
    return question.edit_delivery != "" or is_asked_still(rows.request(latest), since)


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
        "last_at": now if last is None else now + (last - time_from_millis(now)) // timedelta(milliseconds=1),
        "ended_at": None,
        "ended_as": None,
        "readers": _readers(question),
    }


def _readers(question: Question) -> str:
    """Lists everybody whom a question may ever concern, escalated or not, one entry a line between line ends."""
    entries = (f"user:{question.requester.user}", *question.approvers, *question.escalate_to)
    return "\n".join(("", *dict.fromkeys(entries), ""))


def _question(row: Row[Any]) -> Question:
    found = Question.model_validate_json(row.body)
    if row.ended_at is None:
        return found
    return found.model_copy(update={"ended_at": time_from_millis(row.ended_at), "ended_as": row.ended_as})


def _listed(row: Row[Any], answers: Sequence[StoredAnswer], now: datetime) -> ApprovalRequest | None:
    """Builds the request of a row; None for a row that holds no question, which must not take down the list of all
    others.
    """
    try:
        return request_at(_question(row), answers, now)
    except (ValidationError, NotCanonical) as error:
        _log.error("the question %r cannot be read: %s", row.approval, type(error).__name__)
        return None


def _answer(row: Row[Any]) -> StoredAnswer:
    vote, at = Vote.model_validate_json(row.body), time_from_millis(row.answered_at)
    return StoredAnswer(row.revision, row.number, vote, at, row.settles, row.voided_at is not None)
