"""Checks and changes the rows that a claim depends on, apart from its ticket."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    Boolean,
    Connection,
    Row,
    String,
    Table,
    bindparam,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from signoff.contracts.grant import Freeze
from signoff.contracts.ids import parse_workflow_id
from signoff.contracts.usage import LONGEST, LimitedUse
from signoff.store.tables import (
    FREEZES,
    GRANT_USES,
    GRANTS,
    PEOPLE,
    RESTORATIONS,
    SESSIONS,
    TICKETS,
    USES,
    StoreClock,
    millis_from_time,
    time_from_millis,
)
from signoff.store.tickets import digest_of_key, earlier_keys

# Claims share their tenant's lock, and a freeze takes it exclusively. Once the freeze is written, every claim that
# missed it is already committed. SQLite has only one writer anyway. Two tenants with the same `hashtext` share a lock,
# which only makes them wait for each other.
_SHARE: Final = text("SELECT pg_advisory_xact_lock_shared(7310271, hashtext(:tenant))")
_ALONE: Final = text("SELECT pg_advisory_xact_lock(7310271, hashtext(:tenant))")
_FREEZE: Final = select(FREEZES).where(FREEZES.c.tenant == bindparam("of"))
# Lock the grant: two claims for its last use would not see each other's row, because their tickets have different keys.
_SPENDING: Final = text("SELECT pg_advisory_xact_lock(7310274, hashtext(:grant))")
SPENT: Final = select(func.count()).where(GRANT_USES.c.grant_id == GRANTS.c.id).correlate(GRANTS).scalar_subquery()
"""The number of uses of a grant ("remembered answer") so far."""
_NOTED: Final = select(GRANT_USES.c.key).where(
    GRANT_USES.c.grant_id == bindparam("named"), GRANT_USES.c.key == bindparam("ticket")
)
# Prevents counting uses of a tool while another transaction takes one. A transaction takes no such lock after this.
_COUNTING: Final = text("SELECT pg_advisory_xact_lock(7310272, hashtext(:counted))")
# The second of two claims for one call must see the first. Their tickets have different keys, so that neither waits for
# the other's row.
_CALLING: Final = text("SELECT pg_advisory_xact_lock(7310273, hashtext(:called))")
# Adding a reference to an existing blob must not race with its removal: both take a lock on its hash.
_KEEPING: Final = text("SELECT pg_advisory_xact_lock_shared(7310276, hashtext(:sha256))")
_REMOVING: Final = text("SELECT pg_try_advisory_xact_lock(7310276, hashtext(:sha256))")
LIVE: Final = select(TICKETS.c.key).where(
    TICKETS.c.workflow == bindparam("of"),
    TICKETS.c.call == bindparam("named"),
    TICKETS.c.nonce == bindparam("turn"),
    TICKETS.c.state != "void",
)
"""The keys of all tickets of a call in one turn, claimed or done.

Parameters: the workflow (`of`), the call (`named`) and the turn's nonce (`turn`).
"""
_SEEN_IF_RUNS: Final = case((bindparam("runs", type_=Boolean), StoreClock()))
# Anyone who can schedule `signoff.outcome` chooses its digests. Therefore a ticket voided by another turn says nothing
# about this call.
_TAKE_OVER: Final = (
    update(TICKETS)
    .where(
        TICKETS.c.key == bindparam("ticket"),
        TICKETS.c.workflow != bindparam("of"),
        TICKETS.c.state == "void",
        TICKETS.c.finished_at.is_(None),
    )
    .values(
        workflow=bindparam("of"),
        call=bindparam("named"),
        tool=bindparam("tool_name"),
        owner=bindparam("by"),
        nonce=bindparam("turn"),
        state="claimed",
        claimed_at=StoreClock(),
        seen_at=_SEEN_IF_RUNS,
    )
)
_RESTORED: Final = select(func.max(RESTORATIONS.c.at))
_LAST: Final = select(TICKETS.c.claimed_at).where(TICKETS.c.key == bindparam("ticket"))
_RETURN: Final = (
    update(USES).where(USES.c.key == bindparam("ticket"), USES.c.returned_at.is_(None)).values(returned_at=StoreClock())
)
SWEPT: Final = 100
"""The limit of outdated uses deleted with each new use, so that no claim waits for many."""
_OLD: Final = (
    select(USES.c.key)
    .where(
        USES.c.tenant == bindparam("of"),
        USES.c.tool == bindparam("named"),
        USES.c.used_at <= StoreClock() - int(LONGEST * 1000),
    )
    .order_by(USES.c.used_at)
    .limit(SWEPT)
    .with_for_update(skip_locked=True)
)
_SWEEP: Final = delete(USES).where(USES.c.key.in_(_OLD))
_KEEP: Final = update(USES).where(USES.c.key == bindparam("ticket")).values(returned_at=None)


def insert_new(connection: Connection, table: Table, values: dict[str, Any]) -> bool:
    """Return False, without a change, if the primary key exists."""
    return connection.execute(_build_adding(table, connection.dialect.name), values).first() is not None


def insert_all_new(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> int:
    """Insert the rows whose primary key does not exist. Return their number."""
    return len(connection.execute(_build_adding(table, connection.dialect.name), rows).all()) if rows else 0


@cache
def insert_or_hold(table: Table, touched: str, dialect: str) -> Any:
    """The insert only locks an existing row with the same primary key.

    `touched` is a column that the role may change. It is set to its own value, because DO NOTHING would neither lock
    nor return the row.
    """
    adding = (sqlite.insert if dialect == "sqlite" else postgresql.insert)(table)
    return adding.on_conflict_do_update(index_elements=list(table.primary_key), set_={touched: table.c[touched]})


def add_claim(connection: Connection, values: dict[str, Any], *, runs: bool) -> bool:
    """Takes over the key if another turn voided it.

    Return whether it succeeded. `runs`: the claimer begins at once, so the ticket counts as seen now.
    """
    if connection.execute(_build_claiming(connection.dialect.name), {**values, "runs": runs}).first() is not None:
        return True
    taken = {"ticket": values["key"], "tool_name": values["tool"], "by": values["owner"], **_call_values(values)}
    return connection.execute(_TAKE_OVER, {**taken, "runs": runs}).rowcount == 1


def restored_at(connection: Connection) -> datetime | None:
    """Return the time of the store's last restore, by its clock, or `None`."""
    restored = connection.scalar(_RESTORED)
    return None if restored is None else time_from_millis(restored)


class Restoration(NamedTuple):
    """Counts, by tenant, of the rights that a restore from a backup took back."""

    at: datetime
    """The time of the restore's report, by the store's clock."""
    grants: Counter[str]
    """Approvals ("remembered answers") revoked."""
    logins: Counter[str]
    """Undeclared people who must sign in again."""
    browsers: Counter[str]
    """Browsers signed out."""


def add_restoration(connection: Connection, *, by: str) -> Restoration:
    """Record a restore of the store now, and revoke rights that the backup may have revived.

    Since the backup, a grant may have been revoked or used up, or a person signed out or lost groups. The restored
    store knows none of that. `by` is the reporting person.
    """
    now = connection.execute(insert(RESTORATIONS).returning(RESTORATIONS.c.at)).scalar_one()
    usable = (GRANTS.c.verdict == "approved", GRANTS.c.revoked_at.is_(None), GRANTS.c.expires_at > now)
    taken = update(GRANTS).where(*usable).values(revoked_at=now, revoked_by=by).returning(GRANTS.c.tenant)
    ended = update(PEOPLE).where(PEOPLE.c.ended_at.is_(None)).values(ended_at=now, ended_by=by)
    return Restoration(
        at=time_from_millis(now),
        grants=Counter(connection.scalars(taken)),
        logins=Counter(connection.scalars(ended.returning(PEOPLE.c.tenant))),
        browsers=Counter(connection.scalars(delete(SESSIONS).returning(SESSIONS.c.tenant))),
    )


def is_forgotten(connection: Connection, key: str, begun: datetime | None) -> bool:
    """Return whether a call without the ticket `key` may have run under it.

    True if the store was restored after the turn `begun`: calls that ran after the backup have no ticket. `None` counts
    as begun before the restore.
    """
    restored = restored_at(connection)
    if restored is None or (begun is not None and begun >= restored):
        return False
    # Approvers gave up the previous ticket after the restore, so the store still knows their decision.
    before = earlier_keys(key)[-1:]
    claimed = connection.scalar(_LAST, {"ticket": before[0]}) if before else None
    return claimed is None or claimed < millis_from_time(restored)


def has_other_action(connection: Connection, values: dict[str, Any]) -> bool:
    """Return whether the call has a ticket, claimed or done, for another digest."""
    own = digest_of_key(values["key"])
    return any(digest_of_key(key) != own for key in connection.scalars(LIVE, _call_values(values)))


def hold_call(connection: Connection, workflow: str, call: str) -> None:
    """Lock a call until the transaction ends. Wait for running claims, block new ones."""
    if connection.dialect.name == "postgresql":
        connection.execute(_CALLING, {"called": f"{workflow} {call}"})


def _call_values(values: dict[str, Any]) -> dict[str, Any]:
    return {"of": values["workflow"], "named": values["call"], "turn": values["nonce"]}


def share_tenant(connection: Connection, tenant: str) -> None:
    """Hold a shared lock until the transaction ends. Waits for a running freeze and blocks new ones."""
    if connection.dialect.name == "postgresql":
        connection.execute(_SHARE, {"tenant": tenant})


def share_blob(connection: Connection, sha256: str) -> None:
    """Hold a shared lock until the transaction ends. Waits for a running removal and blocks new ones."""
    if connection.dialect.name == "postgresql":
        connection.execute(_KEEPING, {"sha256": sha256})


def try_hold_blob(connection: Connection, sha256: str) -> bool:
    """Take an exclusive lock. Return False at once if another transaction is keeping the blob."""
    return connection.dialect.name != "postgresql" or connection.scalar(_REMOVING, {"sha256": sha256}) is True


def hold_tenant(connection: Connection, tenant: str) -> None:
    """Hold an exclusive lock until the transaction ends. Waits for running claims and blocks new ones."""
    if connection.dialect.name == "postgresql":
        connection.execute(_ALONE, {"tenant": tenant})


def freeze_of(connection: Connection, tenant: str) -> Freeze | None:
    row = connection.execute(_FREEZE, {"of": tenant}).first()
    return None if row is None else read_freeze(row)


def read_freeze(row: Row[Any]) -> Freeze:
    return Freeze(tenant=row.tenant, reason=row.reason, by=row.frozen_by, at=time_from_millis(row.frozen_at))


def hold_grant(connection: Connection, grant: str) -> None:
    """Lock a grant until the transaction ends.

    Waits for running uses and revocations, and blocks new ones.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(_SPENDING, {"grant": grant})


def spend_grant(connection: Connection, grant: str, ticket: str) -> bool:
    """Spend one use for one ticket, however often this is called.

    Returns False, without a change, if the grant is used up, revoked or expired.
    """
    hold_grant(connection, grant)
    about = {"named": grant, "ticket": ticket}
    # One statement: on SQLite a count read first could be outdated when the row is written.
    if connection.execute(_build_spending(connection.dialect.name), about).first() is not None:
        return True
    # A retry of the same ticket has already spent its use.
    return connection.execute(_NOTED, about).first() is not None


def take_use(connection: Connection, use: LimitedUse, ticket: str) -> datetime | None:
    """Take one use for one ticket.

    If no use is left, returns the time of the next possible one and changes nothing. Deletes uses of the tool that are
    older than any limit's period.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(_COUNTING, {"counted": f"{use.tenant} {use.tool}"})
    again = possible_again(connection, use)
    if again is None:
        values = use._asdict() | {"key": ticket}
        # Do not store the limit: a changed limit also counts earlier uses.
        del values["limit"]
        insert_new(connection, USES, values)
        connection.execute(_SWEEP, {"of": use.tenant, "named": use.tool})
    return again


def possible_again(connection: Connection, use: LimitedUse, *, but: str = "") -> datetime | None:
    """Return the time when one more use becomes possible, or `None` if it is possible now.

    Does not count a use by the call `but` of the same turn.
    """
    period = round(use.limit.period * 1000)
    used = [USES.c.tenant == use.tenant, USES.c.tool == use.tool, USES.c.returned_at.is_(None)]
    if use.limit.per == "user":
        used.append(USES.c.person == use.person)
    if use.limit.per == "session":
        used.append(USES.c.session == use.session)
    if but:
        used.append(or_(USES.c.session != use.session, USES.c.turn != use.turn, USES.c.call != but))
    # The use that blocks the next one: when it leaves the period, there is room again.
    oldest = (
        select(USES.c.used_at)
        .where(*used, USES.c.used_at > StoreClock() - period)
        .order_by(USES.c.used_at.desc())
        .offset(use.limit.count - 1)
        .limit(1)
    )
    used_at = connection.scalar(oldest)
    return None if used_at is None else time_from_millis(used_at + period)


def return_use(connection: Connection, ticket: str) -> None:
    """Give back the ticket's use, if it took one, because its call had no effect."""
    connection.execute(_RETURN, {"ticket": ticket})


def keep_use(connection: Connection, ticket: str) -> None:
    """Count a returned use again, because the call took effect after all."""
    connection.execute(_KEEP, {"ticket": ticket})


def tenant_of(workflow: str) -> str:
    """Return the tenant of a turn's workflow id, or "" for other ids."""
    key = parse_workflow_id(workflow)
    return "" if key is None else key.tenant


@cache
def _build_spending(dialect: str) -> Any:
    left = select(GRANTS.c.id, bindparam("ticket", type_=String()), StoreClock()).where(
        GRANTS.c.id == bindparam("named"),
        GRANTS.c.uses > SPENT,
        GRANTS.c.revoked_at.is_(None),
        GRANTS.c.expires_at > StoreClock(),
    )
    insert = sqlite.insert if dialect == "sqlite" else postgresql.insert
    key = list(GRANT_USES.primary_key)
    adding = insert(GRANT_USES).from_select([*key, GRANT_USES.c.used_at], left, include_defaults=False)
    return adding.on_conflict_do_nothing(index_elements=key).returning(*key)


@cache
def _build_adding(table: Table, dialect: str) -> Any:
    insert = sqlite.insert if dialect == "sqlite" else postgresql.insert
    key = list(table.primary_key)
    # Ignore only conflicts of the primary key: a conflict in another unique index is a fault and must raise.
    return insert(table).on_conflict_do_nothing(index_elements=key).returning(*key)


@cache
def _build_claiming(dialect: str) -> Any:
    return _build_adding(TICKETS, dialect).values(seen_at=_SEEN_IF_RUNS)
