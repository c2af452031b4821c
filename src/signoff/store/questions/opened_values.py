"""Records which people opened which values of a question.

The approval of an incomplete card depends on it.
"""

from datetime import timedelta

from sqlalchemy import delete, func, select

from signoff.store.claim_conditions import insert_new
from signoff.store.leases import in_seconds
from signoff.store.store import Store
from signoff.store.tables import OPENED_VALUES


class OpenedValues:
    """Reads and writes the opened pages. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def add(self, question_hash: str, tenant: str, person: str, page: int) -> None:
        """`page` counts from 1."""
        row = {"question_hash": question_hash, "tenant": tenant, "person": person, "page": page}
        await self._store.run(lambda connection: insert_new(connection, OPENED_VALUES, row))

    async def count(self, question_hash: str, tenant: str, person: str, pages: int) -> int:
        query = (
            select(func.count())
            .select_from(OPENED_VALUES)
            .where(
                OPENED_VALUES.c.question_hash == question_hash,
                OPENED_VALUES.c.tenant == tenant,
                OPENED_VALUES.c.person == person,
                OPENED_VALUES.c.page <= pages,
            )
        )
        return await self._store.read(lambda connection: connection.scalar(query) or 0)

    async def sweep(self, kept: timedelta) -> None:
        old = delete(OPENED_VALUES).where(OPENED_VALUES.c.opened_at < in_seconds(-kept.total_seconds()))
        await self._store.run(lambda connection: connection.execute(old).rowcount)
