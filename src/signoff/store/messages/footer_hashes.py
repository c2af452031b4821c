"""Stores hashes of the text blocks below people's sign-offs, asked about or confirmed."""

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
    """The block's SHA-256."""
    code: str
    """The short code of the request being answered."""
    known: bool
    """Whether the person confirmed that the block has no meaning."""


class Footers:
    """Reads and writes the blocks. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_newest(self, tenant: str, person: str) -> Sequence[Footer]:
        """At most `FOOTERS_PER_PERSON`."""
        query = (
            select(FOOTERS)
            .where(FOOTERS.c.tenant == tenant, FOOTERS.c.person == person)
            # List confirmed blocks first, so that unconfirmed ones cannot displace them.
            .order_by(FOOTERS.c.known_at.is_(None), FOOTERS.c.asked_at.desc(), FOOTERS.c.digest)
            .limit(FOOTERS_PER_PERSON)
        )
        rows = await self._store.read(lambda connection: connection.execute(query).all())
        return [Footer(row.digest, row.code, row.known_at is not None) for row in rows]

    async def ask(self, tenant: str, person: str, digest: str, code: str) -> None:
        """`code` is that of the request being answered."""
        row = {"tenant": tenant, "person": person, "digest": digest, "code": code}
        await self._store.run(lambda connection: insert_new(connection, FOOTERS, row))

    async def confirm(self, tenant: str, person: str, digest: str) -> None:
        where = (FOOTERS.c.tenant == tenant, FOOTERS.c.person == person, FOOTERS.c.digest == digest)
        change = update(FOOTERS).where(*where).values(known_at=StoreClock())
        await self._store.run(lambda connection: connection.execute(change).rowcount)

    async def sweep(self, kept: timedelta) -> None:
        """Keeps confirmed blocks."""
        over = FOOTERS.c.asked_at < in_seconds(-kept.total_seconds())
        old = delete(FOOTERS).where(FOOTERS.c.known_at.is_(None), over)
        await self._store.run(lambda connection: connection.execute(old).rowcount)
