"""Counts the acts of tenants with limits: turns started, cards and events sent.

All processes share the counts.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

from sqlalchemy import BigInteger, Connection, Row, bindparam, delete, func, select, text

from signoff.formats.tenant_limits import RateLimit, TenantLimits
from signoff.store.claim_conditions import insert_all_new, insert_new
from signoff.store.tables import COUNTED_ACTS, NOW, StoreClock

ActKind = Literal["start", "card", "event"]
SWEPT: Final = 100
"""The limit of outdated rows deleted with each new one."""
_UNBOUNDED: Final = 2**31 - 1
# Two takers of a limit's last place would not see each other's row: their keys differ. SQLite has only one writer
# anyway.
_COUNTING: Final = text("SELECT pg_advisory_xact_lock(7310277, hashtext(:counted))")
_USED: Final = (
    select(COUNTED_ACTS.c.tenant, func.count())
    .where(
        COUNTED_ACTS.c.kind == bindparam("of"),
        COUNTED_ACTS.c.tenant.in_(bindparam("named", expanding=True)),
        COUNTED_ACTS.c.at > NOW - bindparam("period", type_=BigInteger),
    )
    .group_by(COUNTED_ACTS.c.tenant)
)


class StartCounts:
    """Counts the turns started by one tenant with a limit."""

    def __init__(self, tenant: str, rate: RateLimit) -> None:
        self._tenant = tenant
        self._rate = rate

    def take(self, connection: Connection, name: str) -> float:
        """Return 0, or the seconds until a start is possible. The same name counts as the same start."""
        _hold(connection, f"start {self._tenant}")
        again = self.possible_in(connection, name)
        if again == 0:
            insert_new(connection, COUNTED_ACTS, _act("start", self._tenant, name))
            _sweep(connection, "start", self._tenant, self._rate)
        return again

    def possible_in(self, connection: Connection, name: str) -> float:
        """Return seconds: 0 if a start of this name is possible now or already counted."""
        acts, rate = COUNTED_ACTS.c, self._rate
        if connection.scalar(select(acts.at).where(acts.key == _key("start", self._tenant, name))) is not None:
            return 0.0
        # The act that blocks the next one: when it leaves the period, there is room again.
        oldest = (
            select(acts.at + rate.milliseconds - StoreClock())
            .where(acts.kind == "start", acts.tenant == self._tenant, acts.at > NOW - rate.milliseconds)
            .order_by(acts.at.desc())
            .offset(rate.count - 1)
            .limit(1)
        )
        left = connection.scalar(oldest)
        return 0.0 if left is None else max(left, 1) / 1000


class DeliveryLimit:
    """Limits how many rows of each tenant are claimed for sending in a period.

    `name` returns the name of a row's attempt. The same name counts once.
    """

    def __init__(self, kind: Literal["card", "event"], limits: TenantLimits, name: Callable[[Row[Any]], str]) -> None:
        self._kind = kind
        self._limits = limits
        self._name = name

    def hold(self, connection: Connection) -> None:
        """Other claimers under this limit wait until the transaction ends."""
        _hold(connection, self._kind)

    def count_left(self, connection: Connection, tenants: Iterable[str]) -> dict[str, int]:
        """Return how many rows of each tenant may be claimed now. Reads the tenants' acts of one period."""
        left, limited = dict[str, int](), defaultdict[int, list[str]](list)
        for tenant in tenants:
            rate = self._limits.of(tenant).deliveries
            left[tenant] = _UNBOUNDED if rate is None else rate.count
            if rate is not None:
                limited[rate.milliseconds].append(tenant)
        for milliseconds, some in limited.items():
            for tenant, number in connection.execute(_USED, {"of": self._kind, "named": some, "period": milliseconds}):
                left[tenant] -= number
        return left

    def count(self, connection: Connection, rows: Iterable[Row[Any]]) -> None:
        limited = [row for row in rows if self._limits.of(row.tenant).deliveries is not None]
        insert_all_new(connection, COUNTED_ACTS, [_act(self._kind, row.tenant, self._name(row)) for row in limited])
        for tenant in sorted({row.tenant for row in limited}):
            rate = self._limits.of(tenant).deliveries
            if rate is not None:
                _sweep(connection, self._kind, tenant, rate)


def _hold(connection: Connection, counted: str) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(_COUNTING, {"counted": counted})


def _key(kind: ActKind, tenant: str, name: str) -> str:
    return f"{kind}/{tenant}/{name}"


def _act(kind: ActKind, tenant: str, name: str) -> dict[str, Any]:
    return {"key": _key(kind, tenant, name), "kind": kind, "tenant": tenant}


def _sweep(connection: Connection, kind: ActKind, tenant: str, rate: RateLimit) -> None:
    acts = COUNTED_ACTS.c
    old = (
        select(acts.key)
        .where(acts.kind == kind, acts.tenant == tenant, acts.at <= NOW - rate.milliseconds)
        .order_by(acts.at)
        .limit(SWEPT)
    )
    # A delete by a subquery might read the whole table.
    if keys := connection.scalars(old).all():
        connection.execute(delete(COUNTED_ACTS).where(acts.key.in_(keys)))
