"""Reads cheaply whether the questions, answers or outcomes of turns have changed."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, case, func, select, tuple_

from signoff.contracts.ids import TurnKey
from signoff.store.store import Store
from signoff.store.tables import ANSWERS, QUESTIONS, TICKETS

_AT_ONCE: Final = 500
"""Turns in one statement. A statement of PostgreSQL has at most 32,767 parameters."""
_TURN: Final = (QUESTIONS.c.tenant, QUESTIONS.c.session, QUESTIONS.c.turn)
_QUESTIONS: Final = (
    select(
        *_TURN,
        func.count(),
        func.max(QUESTIONS.c.revision),
        func.count(QUESTIONS.c.ended_at),
        func.count(QUESTIONS.c.settled_at),
        func.max(ANSWERS.c.number),
        func.count(ANSWERS.c.handed_at),
        func.count(ANSWERS.c.voided_at),
    )
    .outerjoin(ANSWERS, ANSWERS.c.approval == QUESTIONS.c.approval)
    .group_by(*_TURN)
)
_TICKETS: Final = select(
    TICKETS.c.workflow,
    func.count(),
    func.count(TICKETS.c.outcome),
    func.count(TICKETS.c.late_report),
    func.count(case((TICKETS.c.state == "void", 1))),
    func.max(TICKETS.c.finished_at),
).group_by(TICKETS.c.workflow)


class TurnStamp(NamedTuple):
    """Differs after each change of a turn's questions, answers and outcomes."""

    questions: tuple[int | None, ...] = ()
    tickets: tuple[int | None, ...] = ()

    @property
    def has_question(self) -> bool:
        return self.questions != ()


class TurnStamps:
    """Reads the stamps of turns in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, turns: Sequence[TurnKey]) -> dict[TurnKey, TurnStamp]:
        """Includes turns without rows. Raises `StoreUnavailable`."""
        return await self._store.read(lambda connection: dict(_read(connection, turns)))


def _read(connection: Connection, turns: Sequence[TurnKey]) -> Iterator[tuple[TurnKey, TurnStamp]]:
    for first in range(0, len(turns), _AT_ONCE):
        some = turns[first : first + _AT_ONCE]
        asked = _QUESTIONS.where(tuple_(*_TURN).in_([tuple(turn) for turn in some]))
        run = _TICKETS.where(TICKETS.c.workflow.in_([turn.workflow_id for turn in some]))
        questions = {TurnKey(*row[:3]): _numbers(row, 3) for row in connection.execute(asked)}
        tickets = {row[0]: _numbers(row, 1) for row in connection.execute(run)}
        for turn in some:
            yield turn, TurnStamp(questions.get(turn, ()), tickets.get(turn.workflow_id, ()))


def _numbers(row: Row[Any], first: int) -> tuple[int | None, ...]:
    return tuple(row[first:])
