"""Reads all rows of an approval in one transaction: its question revisions and answers."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, bindparam, func, select, text

from signoff.approvals.request_state import StoredAnswer, request_at, undo_seconds
from signoff.contracts.approval import ApprovalRequest, Question, Vote
from signoff.formats.replace import replace
from signoff.store.tables import ANSWERS, QUESTIONS, StoreClock, time_from_millis

UNREADABLE: Final = (ValueError, OverflowError)
"""Raised for a row that is no question or answer."""
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
            (QUESTIONS, QUESTIONS.c.asked_at),
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
    """The answers, in the order of storing."""
    now: datetime
    """The store's clock at the time of reading, in UTC."""
    _made: dict[int, ApprovalRequest] = field(default_factory=dict, compare=False, repr=False)
    """Requests by revision: each is used several times, and its hash is slow to compute."""

    @property
    def latest(self) -> Question:
        """There is always a latest revision."""
        return self.questions[-1]

    def revision(self, number: int) -> Question | None:
        return next((each for each in self.questions if each.revision == number), None)

    def request(self, question: Question, at: datetime | None = None) -> ApprovalRequest:
        """Return the request in its state at `at` or now, without its card."""
        if at is not None or self.revision(question.revision) is not question:
            return request_at(question, self.answers, at or self.now)
        if question.revision not in self._made:
            self._made[question.revision] = request_at(question, self.answers, self.now)
        return self._made[question.revision]

    @property
    def undo_seconds(self) -> float:
        """Return the seconds until no denial can be undone, or 0."""
        return undo_seconds(self.answers, self.now)

    @property
    def counts(self) -> "RowCounts":
        asked = sum(each.asked_at is not None for each in self.questions)
        ended = sum(each.ended_at is not None for each in self.questions)
        return RowCounts(len(self.questions), asked, ended, len(self.answers), sum(each.void for each in self.answers))


class RowCounts(NamedTuple):
    """Counts of an approval's rows.

    A row changes only when a question moves its deadline and when it ends, each once, so equal counts mean equal rows.
    """

    questions: int
    asked: int
    ended: int
    answers: int
    void: int


def lock_approval(connection: Connection, approval: str) -> None:
    """Lock an approval until the transaction ends: wait for running writers, block new ones."""
    # SQLite has only one writer at a time.
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK, {"approval": approval})


def read_rows(connection: Connection, approval: str) -> ApprovalRows | None:
    rows = connection.execute(_ROWS, {"of": approval}).all()
    if not rows:
        return None
    questions = tuple(map(question_from_row, rows))
    answers = tuple(answer_from_row(row) for row in connection.execute(_ANSWERS, {"of": approval}))
    return ApprovalRows(questions, answers, time_from_millis(rows[0].clock))


def read_rows_anew(connection: Connection, approval: str, before: ApprovalRows | None) -> ApprovalRows | None:
    """Return `before`, read earlier, if nothing was added since: counting takes a fraction of the time of reading.

    Call under the approval's lock.
    """
    if before is not None and before.counts == RowCounts(*connection.execute(_COUNTS, {"of": approval}).one()):
        return before
    return read_rows(connection, approval)


def question_from_row(row: Row[Any]) -> Question:
    asked_at = None if row.asked_at is None else time_from_millis(row.asked_at)
    question = replace(Question.model_validate_json(row.body), asked_at=asked_at)
    if row.ended_at is None:
        return question
    return replace(question, ended_at=time_from_millis(row.ended_at), ended_as=row.ended_as)


def answer_from_row(row: Row[Any]) -> StoredAnswer:
    vote, at = Vote.model_validate_json(row.body), time_from_millis(row.answered_at)
    arrived = None if row.arrived_at is None else time_from_millis(row.arrived_at)
    void, handed = row.voided_at is not None, row.handed_at is not None
    return StoredAnswer(row.revision, row.number, vote, at, row.settles, void, arrived, handed)
