"""Stores people's answers, and which of them are still to be handed to their turns."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import Connection, func, insert, select, update

from signoff.approvals.request_state import undo_seconds
from signoff.contracts.approval import Vote
from signoff.contracts.ids import TurnKey
from signoff.store.change_notices import note_change
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.question_readers import add_answerer
from signoff.store.questions.questions import Questions, has_begun, settle_question
from signoff.store.questions.request_lists import waits
from signoff.store.store import Store
from signoff.store.tables import ANSWERS, QUESTIONS, StoreClock, millis_from_time

OWED_SECONDS: Final = 5.0
"""Any gateway hands over an answer of at least this age.

The gateway that took it does so at once.
"""


class OwedAnswer(NamedTuple):
    """An answer that its turn may not have received yet."""

    approval: str
    number: int
    """The number of the answer within its approval."""
    vote: Vote


class Answers:
    """Reads and writes the answers in a store. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_owed(self, older_than: float, limit: int) -> list[OwedAnswer]:
        """Oldest first. `older_than` is in seconds."""
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

        return await self._store.read(read)

    async def find_owed(self, approval: str, delivery: str) -> OwedAnswer | None:
        """`None` if the turn has the answer."""
        query = select(ANSWERS).where(
            ANSWERS.c.approval == approval,
            ANSWERS.c.delivery == delivery,
            ANSWERS.c.handed_at.is_(None),
            ANSWERS.c.voided_at.is_(None),
        )

        def read(connection: Connection) -> OwedAnswer | None:
            row = connection.execute(query).first()
            return None if row is None else OwedAnswer(row.approval, row.number, Vote.model_validate_json(row.body))

        return await self._store.read(read)

    async def owe_again(self, waiting: Sequence[tuple[str, int]], older_than: float) -> int:
        """`waiting` contains approval ids, each with the revision that waits.

        Return the number of answers. A turn that was reset to before an answer has lost it. Leaves out answers handed
        over in the last `older_than` seconds: they may be on their way.
        """

        def write(connection: Connection) -> int:
            return sum(_owe_again(connection, approval, revision, older_than) for approval, revision in waiting)

        return await self._store.run(write)

    async def owe_turn(self, turn: TurnKey, older_than: float) -> int:
        """Called if the turn waits although nothing of it waits in the store."""
        ours = (QUESTIONS.c.tenant == turn.tenant, QUESTIONS.c.session == turn.session, QUESTIONS.c.turn == turn.turn)
        latest = (
            select(QUESTIONS.c.approval, func.max(QUESTIONS.c.revision)).where(*ours).group_by(QUESTIONS.c.approval)
        )
        rows = await self._store.read(lambda connection: connection.execute(latest).all())
        return await self.owe_again([(name, revision) for name, revision in rows], older_than)

    async def read_undo_seconds(self, approval: str, delivery: str) -> float | None:
        """Return `None` if the answer is void.

        Reads under the approval's lock: an undo has either committed already or will be refused.
        """

        def read(connection: Connection, rows: ApprovalRows | None) -> float | None:
            answers = () if rows is None else rows.answers
            own = [each for each in answers if each.vote.decision.delivery_id == delivery and not each.void]
            return None if rows is None or not own else undo_seconds(own, rows.now)

        return await Questions(self._store).run_locked(approval, read)

    async def void(self, approval: str, delivery: str) -> bool:
        """Return False, without a change, if the call has begun.

        A turn that has begun a call on an approval has taken it, whatever is claimed in its name later.
        """
        ours = (ANSWERS.c.approval == approval, ANSWERS.c.delivery == delivery)

        def write(connection: Connection, rows: ApprovalRows | None) -> bool:
            numbers = connection.scalars(select(ANSWERS.c.revision).where(*ours)).all()
            questions = [each for each in (() if rows is None else rows.questions) if each.revision in numbers]
            if any(has_begun(connection, each) for each in questions):
                return False
            void_answer(connection, approval, delivery, numbers)
            return True

        return await Questions(self._store).run_locked(approval, write)

    async def hand_over(self, approval: str, delivery: str) -> None:
        change = (
            update(ANSWERS)
            .where(ANSWERS.c.approval == approval, ANSWERS.c.delivery == delivery, ANSWERS.c.handed_at.is_(None))
            .values(handed_at=StoreClock())
        )

        def write(connection: Connection) -> None:
            note_change(connection)
            connection.execute(change)

        await self._store.run(write)


def void_answer(connection: Connection, approval: str, delivery: str, revisions: Sequence[int]) -> None:
    """Requests settled by the answer wait again. Call only in `Questions.run_locked`."""
    ours = (ANSWERS.c.approval == approval, ANSWERS.c.delivery == delivery, ANSWERS.c.voided_at.is_(None))
    note_change(connection)
    connection.execute(update(ANSWERS).where(*ours).values(voided_at=StoreClock()))
    waiting = (QUESTIONS.c.approval == approval, QUESTIONS.c.revision.in_(revisions), *waits())
    connection.execute(update(QUESTIONS).where(*waiting).values(settled_at=None))


def add_answer(
    connection: Connection,
    rows: ApprovalRows,
    vote: Vote,
    *,
    settles: bool,
    arrived: datetime | None = None,
    handed: bool = False,
    void: bool = False,
) -> int:
    """Return the number of the new answer. Call only in `Questions.run_locked`.

    `arrived` is the time at which a channel received the answer, by the store's clock, or `None` for now. `handed`
    means that its turn has it. `void` means that it does not count.
    """
    decision, revision = vote.decision, vote.decision.revision or 1
    number = max((each.number for each in rows.answers), default=0) + 1
    row = insert(ANSWERS).values(
        approval=decision.approval_id,
        number=number,
        revision=revision,
        person_id=vote.subject,
        delivery=decision.delivery_id,
        body=vote.model_dump_json(),
        settles=settles,
        answered_at=StoreClock(),
        arrived_at=millis_from_time(arrived or rows.now),
        handed_at=StoreClock() if handed else None,
        voided_at=StoreClock() if void else None,
    )
    note_change(connection)
    connection.execute(row)
    add_answerer(connection, decision.approval_id, revision, vote.subject)
    if settles:
        settle_question(connection, decision.approval_id, revision)
    return number


def _owe_again(connection: Connection, approval: str, revision: int, older_than: float) -> int:
    ours = (ANSWERS.c.approval == approval, ANSWERS.c.revision == revision)
    settled = select(ANSWERS.c.number).where(*ours, ANSWERS.c.settles, ANSWERS.c.voided_at.is_(None))
    if connection.execute(settled).first() is None:
        return 0
    handed = ANSWERS.c.handed_at <= StoreClock() - int(older_than * 1000)
    return connection.execute(update(ANSWERS).where(*ours, handed).values(handed_at=None)).rowcount
