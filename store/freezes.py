"""The kill switch's rows: tenants whose tools do not run."""

from sqlalchemy import Connection, delete, select

from signoff.contracts.grant import Freeze
from signoff.store.schema import FREEZES
from signoff.store.store import Store
from signoff.store.terms import added, freeze_of, hold_tenant, read_freeze


class Freezes:
    """The freezes in a store. All methods raise `StoreUnavailable` when the database fails."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def freeze(self, tenant: str, *, reason: str, by: str) -> Freeze:
        """Freeze a tenant; returns the freeze that stands, which is the first.

        No ticket of the tenant is claimed after this returns, until it is thawed.
        """

        def write(connection: Connection) -> Freeze:
            hold_tenant(connection, tenant)
            added(connection, FREEZES, {"tenant": tenant, "reason": reason, "frozen_by": by})
            return read_freeze(connection.execute(select(FREEZES).where(FREEZES.c.tenant == tenant)).one())

        return await self._store.run(write)

    async def thaw(self, tenant: str) -> Freeze | None:
        """Lift a freeze; returns what was lifted, None when the tenant was not frozen."""
        gone = delete(FREEZES).where(FREEZES.c.tenant == tenant).returning(FREEZES)

        def lift(connection: Connection) -> Freeze | None:
            row = connection.execute(gone).first()
            return None if row is None else read_freeze(row)

        return await self._store.run(lift)

    async def look(self, tenant: str) -> Freeze | None:
        """The freeze of a tenant, or None."""
        return await self._store.run(lambda connection: freeze_of(connection, tenant))

    async def all(self) -> list[Freeze]:
        """Every tenant that is frozen, the latest first."""
        query = select(FREEZES).order_by(FREEZES.c.frozen_at.desc(), FREEZES.c.tenant)
        return await self._store.run(lambda connection: [read_freeze(row) for row in connection.execute(query)])
