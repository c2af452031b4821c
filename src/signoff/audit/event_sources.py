"""Stores up to when each event source was followed, across restarts of all gateways."""

from datetime import datetime

from sqlalchemy import Connection, func, select, update

from signoff.store.claim_conditions import insert_new
from signoff.store.store import Store
from signoff.store.tables import EVENT_SOURCES, time_from_millis


class EventSources:
    """Reads and writes these times. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, name: str, first: datetime) -> datetime:
        """Return the time until when a source was followed. Stores `first` for a new one."""

        def work(connection: Connection) -> datetime:
            insert_new(connection, EVENT_SOURCES, {"name": name, "moment": _millis(first)})
            query = select(EVENT_SOURCES.c.moment).where(EVENT_SOURCES.c.name == name)
            return time_from_millis(connection.execute(query).scalar_one())

        return await self._store.run(work)

    async def advance(self, name: str, moment: datetime) -> None:
        """Never moves back."""
        ahead = func.max if self._store.dialect == "sqlite" else func.greatest
        change = update(EVENT_SOURCES).where(EVENT_SOURCES.c.name == name)
        later = change.values(moment=ahead(EVENT_SOURCES.c.moment, _millis(moment)))
        await self._store.run(lambda connection: connection.execute(later))


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
