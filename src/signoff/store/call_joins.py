"""Maps equal proposals without a key to one unused call, until its result is handed out."""

from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, delete, select

from signoff.store.claim_conditions import insert_new
from signoff.store.leases import in_seconds
from signoff.store.store import Store
from signoff.store.tables import CALL_JOINS, StoreClock, time_from_millis


class JoinedCall(NamedTuple):
    """The call of a proposal."""

    turn: str
    at: datetime
    """The time of joining, by the store's clock."""
    is_new: bool
    """Whether this was the first equal proposal."""
    given: str = ""
    """The value stored with the first proposal."""


class CallJoins:
    """Reads and writes joined calls. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def join(self, key: str, turn: str, given: str = "") -> JoinedCall:
        """Return the stored call that proposals with this digest join, or a new one with `turn` and `given`."""

        def enter(connection: Connection) -> JoinedCall:
            query = select(CALL_JOINS.c.turn, StoreClock(), CALL_JOINS.c.given).where(CALL_JOINS.c.key == key)
            row = {"key": key, "turn": turn, "given": given or None}
            while True:
                is_new = insert_new(connection, CALL_JOINS, row)
                row_now = connection.execute(query).first()
                # Without a row, the call was released between the two statements. Try again.
                if row_now is not None:
                    return JoinedCall(row_now[0], time_from_millis(row_now[1]), is_new, row_now[2] or "")

        return await self._store.run(enter)

    async def find(self, key: str) -> str:
        """Return the turn of the call that proposals with this digest join, or ""."""
        query = select(CALL_JOINS.c.turn).where(CALL_JOINS.c.key == key)
        turn = await self._store.read(lambda connection: connection.execute(query).scalar_one_or_none())
        return "" if turn is None else str(turn)

    async def read(self, key: str) -> JoinedCall | None:
        query = select(CALL_JOINS.c.turn, StoreClock(), CALL_JOINS.c.given).where(CALL_JOINS.c.key == key)
        row = await self._store.read(lambda connection: connection.execute(query).first())
        return None if row is None else JoinedCall(row[0], time_from_millis(row[1]), False, row[2] or "")

    async def move(self, key: str, turn: str) -> None:
        """Make proposals with this digest join the call of `turn`, and no other."""

        def enter(connection: Connection) -> None:
            connection.execute(delete(CALL_JOINS).where(CALL_JOINS.c.key == key))
            insert_new(connection, CALL_JOINS, {"key": key, "turn": turn})

        await self._store.run(enter)

    async def release(self, key: str, turn: str) -> None:
        """No effect if another call has replaced the call of `turn`."""
        release = delete(CALL_JOINS).where(CALL_JOINS.c.key == key, CALL_JOINS.c.turn == turn)
        await self._store.run(lambda connection: connection.execute(release).rowcount)

    async def sweep(self, kept: timedelta) -> None:
        """Delete calls first proposed longer ago than `kept`, whose results were never fetched."""
        # Read the clock once in a subquery: PostgreSQL uses no index for a clock that advances during the query.
        since = select(in_seconds(-kept.total_seconds())).scalar_subquery()
        old = delete(CALL_JOINS).where(CALL_JOINS.c.proposed_at < since)
        await self._store.run(lambda connection: connection.execute(old).rowcount)
