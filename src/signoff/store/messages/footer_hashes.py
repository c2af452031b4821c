"""Stores hashes of the blocks of text below people's sign-offs: those they were asked about, and those they
confirmed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import delete, select, update

from signoff.contracts.limits import FOOTERS_PER_PERSON
from signoff.store.claim_conditions import insert_new
from signoff.store.leases import in_seconds
from signoff.store.store import Store
from signoff.store.tables import FOOTERS, StoreClock


@dataclass(frozen=True)
class Footer:
    """One block of text below a person's sign-off."""

    digest: str
    """The block's sha-256."""
    code: str
    """The short code of the request that was being answered."""
    known: bool
    """Whether the person confirmed that the block says nothing."""


class Footers:
    """Reads and writes the blocks in a store. All methods raise `StoreUnavailable` when the database fails."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_newest(self, tenant: str, person: str) -> Sequence[Footer]:
        """Returns the newest blocks of a person, `FOOTERS_PER_PERSON` at most."""
        query = (
            select(FOOTERS)
            .where(FOOTERS.c.tenant == tenant, FOOTERS.c.person == person)
            # What was confirmed is not crowded out by what was only asked about.
            .order_by(FOOTERS.c.known_at.is_(None), FOOTERS.c.asked_at.desc(), FOOTERS.c.digest)
            .limit(FOOTERS_PER_PERSON)
        )
        rows = await self._store.read(lambda connection: connection.execute(query).all())
        return [Footer(row.digest, row.code, row.known_at is not None) for row in rows]

    async def ask(self, tenant: str, person: str, digest: str, code: str) -> None:
        """Records that a person is asked about a block while they answer the request with that code."""
        row = {"tenant": tenant, "person": person, "digest": digest, "code": code}
        await self._store.run(lambda connection: insert_new(connection, FOOTERS, row))

    async def confirm(self, tenant: str, person: str, digest: str) -> None:
        """Records that a block says nothing."""
        where = (FOOTERS.c.tenant == tenant, FOOTERS.c.person == person, FOOTERS.c.digest == digest)
        change = update(FOOTERS).where(*where).values(known_at=StoreClock())
        await self._store.run(lambda connection: connection.execute(change).rowcount)

    async def sweep(self, kept: timedelta) -> None:
        """Deletes blocks that were asked about longer ago than `kept` and never confirmed."""
        over = FOOTERS.c.asked_at < in_seconds(-kept.total_seconds())
        old = delete(FOOTERS).where(FOOTERS.c.known_at.is_(None), over)
        await self._store.run(lambda connection: connection.execute(old).rowcount)
