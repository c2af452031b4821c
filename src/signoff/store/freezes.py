"""Stores the kill switch's rows: tenants whose tools do not run."""

from sqlalchemy import Connection, delete, select

from signoff.contracts.errors import Refused
from signoff.contracts.grant import Freeze
from signoff.store.claim_conditions import freeze_of, hold_tenant, insert_new, read_freeze
from signoff.store.store import Also, Store
from signoff.store.tables import FREEZES


class Freezes:
    """Reads and writes the freezes in a store. All methods raise `StoreUnavailable` when the database fails."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def freeze(self, tenant: str, *, reason: str, by: str, also: Also | None = None) -> Freeze:
        """Freezes a tenant; returns the freeze that stands, which is the first. `also` is written with a new one.

        No ticket of the tenant is claimed after this returns, until it is thawed.
        """

        def write(connection: Connection) -> Freeze:
            # A claim that saw no freeze and is not committed would otherwise start a tool after this has returned.
            hold_tenant(connection, tenant)
            new = insert_new(connection, FREEZES, {"tenant": tenant, "reason": reason, "frozen_by": by})
            if new and also is not None:
                also(connection)
            return read_freeze(connection.execute(select(FREEZES).where(FREEZES.c.tenant == tenant)).one())

        return await self._store.run(write)

    async def thaw(self, tenant: str, *, also: Also | None = None) -> Freeze | None:
        """Lifts a freeze; returns it, or None when the tenant was not frozen. `also` is written in the same
        transaction.
        """
        gone = delete(FREEZES).where(FREEZES.c.tenant == tenant).returning(FREEZES)

        def lift(connection: Connection) -> Freeze | None:
            # Without the tenant's lock: a claim that still sees the freeze is refused, which is the safe side.
            row = connection.execute(gone).first()
            if row is not None and also is not None:
                also(connection)
            return None if row is None else read_freeze(row)

        return await self._store.run(lift)

    async def read(self, tenant: str) -> Freeze | None:
        """Returns the freeze of a tenant, or None."""
        return await self._store.read(lambda connection: freeze_of(connection, tenant))

    async def refuse_new(self, tenant: str) -> None:
        """Raises `Refused` (`frozen`) with the reason while the tenant is frozen: nothing new starts then."""
        standing = await self.read(tenant)
        if standing is not None:
            message = f"the tenant `{tenant}` is frozen: {standing.reason}; nothing new starts until it is thawed"
            raise Refused(message, code="frozen", tenant=tenant)

    async def all(self) -> list[Freeze]:
        """Returns every frozen tenant, the latest first."""
        query = select(FREEZES).order_by(FREEZES.c.frozen_at.desc(), FREEZES.c.tenant)
        return await self._store.read(lambda connection: [read_freeze(row) for row in connection.execute(query)])
