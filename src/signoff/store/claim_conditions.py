"""Checks and changes the rows that a claim depends on beside its ticket: freezes, uses of grants, uses of limited
tools.
"""

from collections import Counter
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

# Claims share the lock of their tenant and a freeze takes it alone: when the freeze is written, every claim that did
# not see it is already committed. SQLite has one writer at a time anyway.
# Two tenants with one `hashtext` share a lock, and then only wait for each other.
_SHARE: Final = text("SELECT pg_advisory_xact_lock_shared(7310271, hashtext(:tenant))")
_ALONE: Final = text("SELECT pg_advisory_xact_lock(7310271, hashtext(:tenant))")
_FREEZE: Final = select(FREEZES).where(FREEZES.c.tenant == bindparam("of"))
# Two that take the last use of one grant would not see each other's row: their tickets have different keys.
_SPENDING: Final = text("SELECT pg_advisory_xact_lock(7310274, hashtext(:grant))")
SPENT: Final = select(func.count()).where(GRANT_USES.c.grant_id == GRANTS.c.id).correlate(GRANTS).scalar_subquery()
"""How often a remembered answer has answered."""
_NOTED: Final = select(GRANT_USES.c.key).where(
    GRANT_USES.c.grant_id == bindparam("named"), GRANT_USES.c.key == bindparam("ticket")
)
# Nobody counts uses of a tool while somebody else takes one; a transaction takes no other such lock after this one.
_COUNTING: Final = text("SELECT pg_advisory_xact_lock(7310272, hashtext(:counted))")
# Of two claims under one call the second has to see the first: their tickets have different keys, so neither waits for
# the other's row.
_CALLING: Final = text("SELECT pg_advisory_xact_lock(7310273, hashtext(:called))")
# Who keeps a blob that is there already must not find that it was removed meanwhile: both take this lock of its hash.
_KEEPING: Final = text("SELECT pg_advisory_xact_lock_shared(7310276, hashtext(:sha256))")
_REMOVING: Final = text("SELECT pg_try_advisory_xact_lock(7310276, hashtext(:sha256))")
LIVE: Final = select(TICKETS.c.key).where(
    TICKETS.c.workflow == bindparam("of"),
    TICKETS.c.call == bindparam("named"),
    TICKETS.c.nonce == bindparam("turn"),
    TICKETS.c.state != "void",
)
"""The keys of the tickets `of` a workflow, under the call `named`, in the `turn` of that nonce: begun or done."""
_SEEN_IF_RUNS: Final = case((bindparam("runs", type_=Boolean), StoreClock()))
# Whoever may schedule `signoff.outcome` names digests as they like: a ticket that was voided under another turn is
# nobody's word about this call.
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
"""How many uses that no limit can count any more go with each that is taken, at most: no claim waits for many."""
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
    """Inserts a row; returns whether it was added, which it is unless its primary key is taken."""
    return connection.execute(_build_adding(table, connection.dialect.name), values).first() is not None


@cache
def insert_or_hold(table: Table, touched: str, dialect: str) -> Any:
    """Builds an insert of a row that, where its primary key is taken, locks the row there and leaves it as it is.

    `touched` is a column that the role may change: it is set to what it holds. DO NOTHING would neither lock the row
    nor return it.
    """
    adding = (sqlite.insert if dialect == "sqlite" else postgresql.insert)(table)
    return adding.on_conflict_do_update(index_elements=list(table.primary_key), set_={touched: table.c[touched]})


def add_claim(connection: Connection, values: dict[str, Any], *, runs: bool) -> bool:
    """Adds the claimed ticket of `values`, or takes its key over where another turn had voided it; returns whether it
    did.

    `runs`: the claimer begins at once, so the ticket counts as seen now.
    """
    if connection.execute(_build_claiming(connection.dialect.name), {**values, "runs": runs}).first() is not None:
        return True
    taken = {"ticket": values["key"], "tool_name": values["tool"], "by": values["owner"], **_call_values(values)}
    return connection.execute(_TAKE_OVER, {**taken, "runs": runs}).rowcount == 1


def restored_at(connection: Connection) -> datetime | None:
    """Returns when the store was last restored from a backup, by its own clock; None where it never was."""
    found = connection.scalar(_RESTORED)
    return None if found is None else time_from_millis(found)


class Restoration(NamedTuple):
    """What was taken back when the store was said to be restored from a backup, by tenant."""

    at: datetime
    """When that was said, by the store's clock."""
    grants: Counter[str]
    """How many remembered approvals."""
    logins: Counter[str]
    """How many people whom nobody declared are to sign in again."""
    browsers: Counter[str]
    """How many browsers are signed out."""


def add_restoration(connection: Connection, *, by: str) -> Restoration:
    """Records that the store was restored now, and takes back what it may say again that was taken back since.

    A remembered approval may have been revoked or used up after the backup, somebody signed out, or a sign-in found
    that they have lost their groups: none of it is in this store. `by` is who says that it was restored.
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
    """Returns whether a call without the ticket `key`, of a turn that was `begun` then, may have run under it.

    That is so where the store was restored from a backup since: what ran after the backup was taken has no ticket. A
    turn of which nobody knows when it was begun is one begun before.
    """
    restored = restored_at(connection)
    if restored is None or (begun is not None and begun >= restored):
        return False
    # The ticket before it was given up by people who were asked since: what they said is not forgotten.
    before = earlier_keys(key)[-1:]
    given = connection.scalar(_LAST, {"ticket": before[0]}) if before else None
    return given is None or given < millis_from_time(restored)


def has_other_action(connection: Connection, values: dict[str, Any]) -> bool:
    """Returns whether another digest than that of the ticket `values` was claimed or done under the ticket's call."""
    own = digest_of_key(values["key"])
    return any(digest_of_key(key) != own for key in connection.scalars(LIVE, _call_values(values)))


def hold_call(connection: Connection, workflow: str, call: str) -> None:
    """Locks a call until the transaction ends: waits for claims of its tickets that have begun, and lets none begin."""
    if connection.dialect.name == "postgresql":
        connection.execute(_CALLING, {"called": f"{workflow} {call}"})


def _call_values(values: dict[str, Any]) -> dict[str, Any]:
    return {"of": values["workflow"], "named": values["call"], "turn": values["nonce"]}


def share_tenant(connection: Connection, tenant: str) -> None:
    """Takes a shared lock on a tenant: no freeze begins before the transaction ends; one that has begun is awaited."""
    if connection.dialect.name == "postgresql":
        connection.execute(_SHARE, {"tenant": tenant})


def share_blob(connection: Connection, sha256: str) -> None:
    """Takes a shared lock on a blob: it is not removed before the transaction ends; a removal that has begun is
    awaited.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(_KEEPING, {"sha256": sha256})


def try_hold_blob(connection: Connection, sha256: str) -> bool:
    """Takes an exclusive lock on a blob and returns True, or False at once where somebody keeps it just now."""
    return connection.dialect.name != "postgresql" or connection.scalar(_REMOVING, {"sha256": sha256}) is True


def hold_tenant(connection: Connection, tenant: str) -> None:
    """Takes an exclusive lock on a tenant: claims that have begun are awaited, none begins before the transaction
    ends.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(_ALONE, {"tenant": tenant})


def freeze_of(connection: Connection, tenant: str) -> Freeze | None:
    """Returns the freeze of a tenant, or None."""
    row = connection.execute(_FREEZE, {"of": tenant}).first()
    return None if row is None else read_freeze(row)


def read_freeze(row: Row[Any]) -> Freeze:
    """Converts a row of `freezes`."""
    return Freeze(tenant=row.tenant, reason=row.reason, by=row.frozen_by, at=time_from_millis(row.frozen_at))


def hold_grant(connection: Connection, grant: str) -> None:
    """Locks a grant until the transaction ends: waits for whoever spends or revokes it, and lets nobody else begin."""
    if connection.dialect.name == "postgresql":
        connection.execute(_SPENDING, {"grant": grant})


def spend_grant(connection: Connection, grant: str, ticket: str) -> bool:
    """Spends one use of a grant for one ticket, once however often it is called.

    Returns False, with nothing changed, when the grant is used up, revoked or expired.
    """
    hold_grant(connection, grant)
    about = {"named": grant, "ticket": ticket}
    # One statement: on SQLite a count that is read first could be out of date once the row is written.
    if connection.execute(_build_spending(connection.dialect.name), about).first() is not None:
        return True
    # A retry of the same ticket has spent its use already.
    return connection.execute(_NOTED, about).first() is not None


def take_use(connection: Connection, use: LimitedUse, ticket: str) -> datetime | None:
    """Takes one use of a limited tool for one ticket; returns None, or when a use is possible again if none is left.

    In the second case nothing is changed. Uses of the tool that are older than any limit's period are deleted on the
    way.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(_COUNTING, {"counted": f"{use.tenant} {use.tool}"})
    again = possible_again(connection, use)
    if again is None:
        values = use._asdict() | {"key": ticket}
        # The limit is not kept: a changed one counts what was used before it.
        del values["limit"]
        insert_new(connection, USES, values)
        connection.execute(_SWEEP, {"of": use.tenant, "named": use.tool})
    return again


def possible_again(connection: Connection, use: LimitedUse, *, but: str = "") -> datetime | None:
    """Returns None where one more use is possible now, else the time when one is.

    A use by the call `but` of the same turn is not counted.
    """
    period = round(use.limit.period * 1000)
    used = [USES.c.tenant == use.tenant, USES.c.tool == use.tool, USES.c.returned_at.is_(None)]
    if use.limit.per == "user":
        used.append(USES.c.person == use.person)
    if use.limit.per == "session":
        used.append(USES.c.session == use.session)
    if but:
        used.append(or_(USES.c.session != use.session, USES.c.turn != use.turn, USES.c.call != but))
    # The oldest that is in the way: once it is out of the period, there is room for another.
    oldest = (
        select(USES.c.used_at)
        .where(*used, USES.c.used_at > StoreClock() - period)
        .order_by(USES.c.used_at.desc())
        .offset(use.limit.count - 1)
        .limit(1)
    )
    found = connection.scalar(oldest)
    return None if found is None else time_from_millis(found + period)


def return_use(connection: Connection, ticket: str) -> None:
    """Gives back the use that a ticket took, if any, because its call came to nothing."""
    connection.execute(_RETURN, {"ticket": ticket})


def keep_use(connection: Connection, ticket: str) -> None:
    """Counts a use again that was given back, because the call was done after all."""
    connection.execute(_KEEP, {"ticket": ticket})


def tenant_of(workflow: str) -> str:
    """Returns the tenant of a turn's workflow id; "" for an id that is no turn's."""
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
    # For the primary key only: a clash with any other unique index is a fault, and must raise.
    return insert(table).on_conflict_do_nothing(index_elements=key).returning(*key)


@cache
def _build_claiming(dialect: str) -> Any:
    return _build_adding(TICKETS, dialect).values(seen_at=_SEEN_IF_RUNS)
