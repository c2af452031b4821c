"""Reads when each question of a turn was asked and stopped waiting, without its contents."""

from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import and_, bindparam, func, select

from signoff.contracts.ids import TurnKey
from signoff.store.store import Store
from signoff.store.tables import ANSWERS, QUESTIONS, StoreClock, time_from_millis
from signoff.telemetry.segments import TurnWait

_SETTLED: Final = (
    select(func.min(ANSWERS.c.answered_at))
    .where(
        ANSWERS.c.approval == QUESTIONS.c.approval,
        ANSWERS.c.revision == QUESTIONS.c.revision,
        ANSWERS.c.settles,
        ANSWERS.c.voided_at.is_(None),
    )
    .scalar_subquery()
)
_WAITS: Final = select(
    QUESTIONS.c.approval,
    QUESTIONS.c.revision,
    QUESTIONS.c.opened_at,
    QUESTIONS.c.last_at,
    QUESTIONS.c.ended_at,
    _SETTLED.label("settled_at"),
).where(
    and_(
        QUESTIONS.c.tenant == bindparam("tenant"),
        QUESTIONS.c.session == bindparam("session"),
        QUESTIONS.c.turn == bindparam("turn"),
    )
)
_NOW: Final = select(StoreClock())


class WaitRows(NamedTuple):
    """The waits of a turn, and the time by the store's clock."""

    waits: tuple[TurnWait, ...]
    """All questions, with their ends if any."""
    now: datetime
    """The time of reading, in UTC."""


class TurnWaits:
    """Reads the waits of turns in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, turn: TurnKey) -> WaitRows:
        """Raises `StoreUnavailable`."""
        rows, now = await self._store.read(
            lambda connection: (
                connection.execute(_WAITS, turn._asdict()).all(),
                int(connection.execute(_NOW).scalar_one()),
            )
        )
        return WaitRows(tuple(_wait(row, now) for row in rows), time_from_millis(now))


def _wait(row: Any, now: int) -> TurnWait:
    ends = [moment for moment in (row.settled_at, row.ended_at, row.last_at) if moment is not None and moment <= now]
    opened = time_from_millis(row.opened_at)
    return TurnWait(row.approval, row.revision, opened, time_from_millis(min(ends)) if ends else None)
