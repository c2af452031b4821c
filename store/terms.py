"""What a claim depends on beside its ticket: its tenant is not frozen, and its grant is not used up or revoked."""

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from sqlalchemy import Connection, Row, Table, bindparam, delete, select, text, update
from sqlalchemy.dialects import postgresql, sqlite

from signoff.contracts.grant import Freeze
from signoff.contracts.ids import parse_workflow_id
from signoff.store.schema import FREEZES, GRANT_USES, GRANTS, StoreClock

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# Claims share the lock of their tenant and a freeze takes it alone: when the freeze is written, every claim that did
# not see it is already committed. SQLite has one writer at a time anyway.
_SHARE: Final = text("SELECT pg_advisory_xact_lock_shared(7310271, hashtext(:tenant))")
_ALONE: Final = text("SELECT pg_advisory_xact_lock(7310271, hashtext(:tenant))")
_FREEZE: Final = select(FREEZES).where(FREEZES.c.tenant == bindparam("of"))
_SPEND: Final = (
    update(GRANTS)
    .where(
        GRANTS.c.id == bindparam("named"),
        GRANTS.c.uses_left > 0,
        GRANTS.c.revoked_at.is_(None),
        GRANTS.c.expires_at > StoreClock(),
    )
    .values(uses_left=GRANTS.c.uses_left - 1)
)
_UNSPEND: Final = delete(GRANT_USES).where(
    GRANT_USES.c.grant_id == bindparam("named"), GRANT_USES.c.key == bindparam("ticket")
)


def added(connection: Connection, table: Table, values: dict[str, Any]) -> bool:
    """Whether the row was added, which it is unless its primary key is taken."""
    return connection.execute(_adding(table, connection.dialect.name), values).first() is not None


def share_tenant(connection: Connection, tenant: str) -> None:
    """Let no freeze of the tenant begin before this transaction ends; wait for one that has begun."""
    if connection.dialect.name == "postgresql":
        connection.execute(_SHARE, {"tenant": tenant})


def hold_tenant(connection: Connection, tenant: str) -> None:
    """Wait until every claim in the tenant that has begun is committed, and let none begin before this ends."""
    if connection.dialect.name == "postgresql":
        connection.execute(_ALONE, {"tenant": tenant})


def freeze_of(connection: Connection, tenant: str) -> Freeze | None:
    """The freeze of a tenant, or None."""
    row = connection.execute(_FREEZE, {"of": tenant}).first()
    return None if row is None else read_freeze(row)


def read_freeze(row: Row[Any]) -> Freeze:
    """A row of `freezes`."""
    return Freeze(tenant=row.tenant, reason=row.reason, by=row.frozen_by, at=moment(row.frozen_at))


def spend(connection: Connection, grant: str, ticket: str) -> bool:
    """Spend one use of a grant for one ticket, once however often it is asked.

    False, with nothing changed, when the grant is used up, revoked or over.
    """
    if not added(connection, GRANT_USES, {"grant_id": grant, "key": ticket}):
        return True
    if connection.execute(_SPEND, {"named": grant}).rowcount == 1:
        return True
    connection.execute(_UNSPEND, {"named": grant, "ticket": ticket})
    return False


def tenant_of(workflow: str) -> str:
    """The tenant of a turn's workflow id; "" for what is no turn."""
    key = parse_workflow_id(workflow)
    return "" if key is None else key.tenant


def moment(milliseconds: int) -> datetime:
    """The time behind what the store's clock says."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


@cache
def _adding(table: Table, dialect: str) -> Any:
    insert = sqlite.insert if dialect == "sqlite" else postgresql.insert
    key = list(table.primary_key)
    return insert(table).on_conflict_do_nothing(index_elements=key).returning(*key)
