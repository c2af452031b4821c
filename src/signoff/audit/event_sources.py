"""Keeps up to which moment each thing is followed of which events are made, over all restarts of all gateways."""

from datetime import datetime

from sqlalchemy import Connection, func, select, update

from signoff.store.claim_conditions import insert_new
from signoff.store.store import Store
from signoff.store.tables import EVENT_SOURCES, time_from_millis


class EventSources:
    """Reads and writes the moments in a store. All methods raise `StoreUnavailable` when the database fails."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, name: str, first: datetime) -> datetime:
        """Returns up to which moment something is followed: up to `first`, which is kept, where it was not yet."""

        def work(connection: Connection) -> datetime:
            insert_new(connection, EVENT_SOURCES, {"name": name, "moment": _millis(first)})
            query = select(EVENT_SOURCES.c.moment).where(EVENT_SOURCES.c.name == name)
            return time_from_millis(connection.execute(query).scalar_one())

        return await self._store.run(work)

    async def advance(self, name: str, moment: datetime) -> None:
        """Says that something is followed up to a moment; never back to an earlier one."""
        ahead = func.max if self._store.dialect == "sqlite" else func.greatest
        change = update(EVENT_SOURCES).where(EVENT_SOURCES.c.name == name)
        later = change.values(moment=ahead(EVENT_SOURCES.c.moment, _millis(moment)))
        await self._store.run(lambda connection: connection.execute(later))


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
