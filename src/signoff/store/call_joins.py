"""Keeps which unused call equal proposals without a key of their own join, until its result was handed out."""

from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, delete, select

from signoff.store.claim_conditions import insert_new
from signoff.store.leases import in_seconds
from signoff.store.store import Store
from signoff.store.tables import CALL_JOINS, StoreClock, time_from_millis


class JoinedCall(NamedTuple):
    """The call that a proposal is of."""

    turn: str
    """The id of its turn."""
    at: datetime
    """When the proposal joined it, by the store's clock."""
    is_new: bool
    """Whether no equal proposal was there before."""
    given: str = ""
    """What was given with the first one."""


class CallJoins:
    """Reads and writes which call is joined. All methods raise `StoreUnavailable` when the database fails."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def join(self, key: str, turn: str, given: str = "") -> JoinedCall:
        """Returns the call that proposals of this digest are of: the one there, or a new one with this turn.

        `given` is kept with a new one.
        """

        def enter(connection: Connection) -> JoinedCall:
            query = select(CALL_JOINS.c.turn, StoreClock(), CALL_JOINS.c.given).where(CALL_JOINS.c.key == key)
            row = {"key": key, "turn": turn, "given": given or None}
            while True:
                is_new = insert_new(connection, CALL_JOINS, row)
                found = connection.execute(query).first()
                # Else it was released between the two statements, and its place is free.
                if found is not None:
                    return JoinedCall(found[0], time_from_millis(found[1]), is_new, found[2] or "")

        return await self._store.run(enter)

    async def find(self, key: str) -> str:
        """Returns the turn of the call that proposals of this digest are of; "" where there is none."""
        query = select(CALL_JOINS.c.turn).where(CALL_JOINS.c.key == key)
        found = await self._store.read(lambda connection: connection.execute(query).scalar_one_or_none())
        return "" if found is None else str(found)

    async def read(self, key: str) -> JoinedCall | None:
        """Returns the call that proposals of this digest are of, with what was given; None where there is none."""
        query = select(CALL_JOINS.c.turn, StoreClock(), CALL_JOINS.c.given).where(CALL_JOINS.c.key == key)
        found = await self._store.read(lambda connection: connection.execute(query).first())
        return None if found is None else JoinedCall(found[0], time_from_millis(found[1]), False, found[2] or "")

    async def move(self, key: str, turn: str) -> None:
        """Lets proposals of this digest be of the call of this turn, whichever they were of."""

        def enter(connection: Connection) -> None:
            connection.execute(delete(CALL_JOINS).where(CALL_JOINS.c.key == key))
            insert_new(connection, CALL_JOINS, {"key": key, "turn": turn})

        await self._store.run(enter)

    async def release(self, key: str, turn: str) -> None:
        """Lets nobody join the call of this turn any more; does nothing where another one took its place."""
        gone = delete(CALL_JOINS).where(CALL_JOINS.c.key == key, CALL_JOINS.c.turn == turn)
        await self._store.run(lambda connection: connection.execute(gone).rowcount)

    async def sweep(self, kept: timedelta) -> None:
        """Deletes calls that were first proposed longer ago than `kept`, and whose results nobody fetched."""
        old = delete(CALL_JOINS).where(CALL_JOINS.c.proposed_at < in_seconds(-kept.total_seconds()))
        await self._store.run(lambda connection: connection.execute(old).rowcount)
