"""Leases rows to one of several processes for a while; a process that is killed loses its lease by that."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Table, func, select, update

from signoff.store.limits.counted_acts import DeliveryLimit
from signoff.store.tables import StoreClock

LEASE_SECONDS: Final = 60.0
"""How long a claimed row is left to its claimer."""
ASIDE_SECONDS: Final = 3_600.0
"""For how long a row is set aside that this version cannot read."""
_log = logging.getLogger(__name__)
_T = TypeVar("_T")
# PostgreSQL takes no NUL in a text, and half a surrogate pair cannot be written as UTF-8 at all.
_SHOWN: Final = {0: "\ufffd"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


def claim_rows(
    connection: Connection,
    table: Table,
    *which: ColumnElement[bool],
    limit: int,
    share_by: ColumnElement[Any] | None = None,
    within: DeliveryLimit | None = None,
) -> Sequence[Row[Any]]:
    """Claims at most `limit` rows that are due, unclaimed, and match `which`; the longest due come first.

    With `share_by`, such as a column of tenants, they come in turn: the longest due of each, then the second of each.
    `within` a limit tenants come so as well, and of each no more than it has left.
    """
    if within is not None:
        share_by = within.tenant
    key = next(iter(table.primary_key))
    free = table.c.claimed_until <= StoreClock()
    # By the store's clock, as all that claim have that one in common: the clocks of their machines may differ.
    due = select(key).where(*which, table.c.due_at <= StoreClock(), free).order_by(table.c.due_at, key)
    if within is not None:
        # Left where they are, in the order in which they are due, until their tenant has something left again.
        due = due.where(within.tenant.not_in(within.select_exhausted()))
    if connection.execute(due.limit(1)).first() is None:
        # Who only looks, twice a second, does not take SQLite's one lock for writing.
        return []
    if within is not None:
        within.hold(connection)
    chosen = due.limit(limit).with_for_update(skip_locked=True)
    if share_by is not None:
        place = func.row_number().over(partition_by=share_by, order_by=(table.c.due_at, key))
        columns = (table.c.due_at, place.label("place"), share_by.label("share"))
        ranked = due.order_by(None).add_columns(*columns).subquery()
        # Apart, as PostgreSQL locks no rows of a query that ranks them; and all that are ranked, of which those that
        # somebody claims just now are passed over: of the first ones alone nothing might be left.
        chosen = select(key).join(ranked, ranked.c[key.name] == key)
        if within is not None:
            chosen = within.restrict(chosen, ranked.c.place, ranked.c.share)
        chosen = chosen.order_by(ranked.c.place, ranked.c.due_at, ranked.c[key.name]).limit(limit)
        chosen = chosen.with_for_update(skip_locked=True, of=table)
    claiming = (
        update(table)
        # Asked again where the row is changed: whoever waited for it there finds it taken.
        .where(key.in_(chosen), free)
        # Counted with the claim, not with its failure: a row that kills its claimers has its attempts counted, too.
        .values(claimed_until=in_seconds(LEASE_SECONDS), attempts=table.c.attempts + 1)
        .returning(table)
    )
    # RETURNING promises no order.
    rows = sorted(connection.execute(claiming).all(), key=lambda row: (row.due_at, row._mapping[key.name]))
    if within is not None:
        within.count(connection, rows)
    return rows


def claim_readable(
    connection: Connection,
    table: Table,
    *which: ColumnElement[bool],
    limit: int,
    read: Callable[[Row[Any]], _T],
    share_by: ColumnElement[Any] | None = None,
    within: DeliveryLimit | None = None,
) -> list[_T]:
    """Claims rows as `claim_rows`, and converts each by `read`. A row that `read` refuses (`ValueError`) is set aside:
    it stops nothing.
    """
    key = next(iter(table.primary_key))
    rows = claim_rows(connection, table, *which, limit=limit, share_by=share_by, within=within)
    found, odd = _read(rows, read)
    if odd:
        _log.error("%d rows of `%s` cannot be read, and are left for %g s", len(odd), table.name, ASIDE_SECONDS)
        # Not deleted, and not failed: another process of a newer version may have written it, and can read it.
        aside = update(table).where(key.in_([row._mapping[key.name] for row in odd]))
        connection.execute(aside.values(due_at=in_seconds(ASIDE_SECONDS), claimed_until=0))
    return found


def readable(rows: Iterable[Row[Any]], read: Callable[[Row[Any]], _T]) -> list[_T]:
    """Converts rows by `read`, leaving out those that it cannot read."""
    return _read(rows, read)[0]


def _read(rows: Iterable[Row[Any]], read: Callable[[Row[Any]], _T]) -> tuple[list[_T], list[Row[Any]]]:
    found: list[_T] = []
    odd: list[Row[Any]] = []
    for row in rows:
        try:
            found.append(read(row))
        except ValueError:
            # What it holds is nobody's who reads a log.
            odd.append(row)
    return found, odd


def in_seconds(seconds: float) -> ColumnElement[int]:
    """Returns the store's time that many seconds from now, as an SQL expression."""
    return StoreClock() + round(seconds * 1000)


def clip_text(text: str, chars: int) -> str:
    """Cuts a text from outside to `chars` characters, in a form that every database takes."""
    return text.translate(_SHOWN)[:chars]
