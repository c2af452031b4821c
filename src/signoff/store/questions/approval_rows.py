"""Reads all rows of one approval in one transaction: its question in each revision, and the answers to it."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, bindparam, func, select, text

from signoff.approvals.request_state import StoredAnswer, request_at, undo_seconds
from signoff.contracts.approval import ApprovalRequest, Question, Vote
from signoff.formats.replace import replace
from signoff.store.tables import ANSWERS, QUESTIONS, StoreClock, time_from_millis

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
    def undo_seconds(self) -> float:
        """Returns the seconds until no denial can be undone any more; 0 where none can."""
        return undo_seconds(self.answers, self.now)

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


def lock_approval(connection: Connection, approval: str) -> None:
    """Locks an approval until the transaction ends: others that write its questions or answers are awaited, then kept
    waiting.
    """
    # SQLite has one writer at a time.
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK, {"approval": approval})


def read_rows(connection: Connection, approval: str) -> ApprovalRows | None:
    """Returns all rows of one approval, or None where nobody was asked."""
    found = connection.execute(_ROWS, {"of": approval}).all()
    if not found:
        return None
    questions = tuple(map(question_from_row, found))
    answers = tuple(answer_from_row(row) for row in connection.execute(_ANSWERS, {"of": approval}))
    return ApprovalRows(questions, answers, time_from_millis(found[0].clock))


def read_rows_anew(connection: Connection, approval: str, before: ApprovalRows | None) -> ApprovalRows | None:
    """Returns all rows of one approval; `before`, which was read of it earlier, where nothing has come since.

    Counting takes a fraction of the time of reading. Called under the lock of the approval.
    """
    if before is not None and before.counts == RowCounts(*connection.execute(_COUNTS, {"of": approval}).one()):
        return before
    return read_rows(connection, approval)


def question_from_row(row: Row[Any]) -> Question:
    """Builds the question of a row, with its ending."""
    found = Question.model_validate_json(row.body)
    if row.ended_at is None:
        return found
    return replace(found, ended_at=time_from_millis(row.ended_at), ended_as=row.ended_as)


def answer_from_row(row: Row[Any]) -> StoredAnswer:
    """Builds the answer of a row."""
    vote, at = Vote.model_validate_json(row.body), time_from_millis(row.answered_at)
    arrived = None if row.arrived_at is None else time_from_millis(row.arrived_at)
    void, handed = row.voided_at is not None, row.handed_at is not None
    return StoredAnswer(row.revision, row.number, vote, at, row.settles, void, arrived, handed)
