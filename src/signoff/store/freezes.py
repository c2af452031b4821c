"""Stores freezes: tenants whose tools do not run."""

from sqlalchemy import Connection, delete, select

from signoff.contracts.errors import Refused
from signoff.contracts.grant import Freeze
from signoff.store.claim_conditions import freeze_of, hold_tenant, insert_new, read_freeze
from signoff.store.store import Also, Store
from signoff.store.tables import FREEZES


class Freezes:
    """Reads and writes freezes. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def freeze(self, tenant: str, *, reason: str, by: str, also: Also | None = None) -> Freeze:
        """Return the existing freeze, or a new one, written together with `also`.

        No ticket of the tenant is claimed after this returns, until the tenant is unfrozen.
        """

        def write(connection: Connection) -> Freeze:
            # Lock the tenant: an uncommitted claim that saw no freeze would start a tool after this returns.
            hold_tenant(connection, tenant)
            new = insert_new(connection, FREEZES, {"tenant": tenant, "reason": reason, "frozen_by": by})
            if new and also is not None:
                also(connection)
            return read_freeze(connection.execute(select(FREEZES).where(FREEZES.c.tenant == tenant)).one())

        return await self._store.run(write)

    async def unfreeze(self, tenant: str, *, also: Also | None = None) -> Freeze | None:
        """`None` if there was no freeze. Writes `also` in the same transaction."""
        removal = delete(FREEZES).where(FREEZES.c.tenant == tenant).returning(FREEZES)

        def lift(connection: Connection) -> Freeze | None:
            # No lock is needed: refusing a claim that still sees the freeze is safe.
            row = connection.execute(removal).first()
            if row is not None and also is not None:
                also(connection)
            return None if row is None else read_freeze(row)

        return await self._store.run(lift)

    async def read(self, tenant: str) -> Freeze | None:
        return await self._store.read(lambda connection: freeze_of(connection, tenant))

    async def refuse_new(self, tenant: str) -> None:
        """Raise `Refused` (`frozen`) with the reason if the tenant is frozen."""
        freeze = await self.read(tenant)
        if freeze is not None:
            message = f"the tenant `{tenant}` is frozen: {freeze.reason}; nothing new starts until it is unfrozen"
            raise Refused(message, code="frozen", tenant=tenant)

    async def all(self) -> list[Freeze]:
        """Newest first."""
        query = select(FREEZES).order_by(FREEZES.c.frozen_at.desc(), FREEZES.c.tenant)
        return await self._store.read(lambda connection: [read_freeze(row) for row in connection.execute(query)])
