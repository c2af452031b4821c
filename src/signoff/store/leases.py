"""Leases rows to one of several processes for a while.

A killed process simply loses its lease.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Table, func, select, update

from signoff.store.limits.counted_acts import DeliveryLimit
from signoff.store.tables import StoreClock

LEASE_SECONDS: Final = 60.0
"""How long a claimed row belongs to its claimer."""
ASIDE_SECONDS: Final = 3_600.0
"""How long a row is set aside if this version cannot read it."""
_log = logging.getLogger(__name__)
_T = TypeVar("_T")
# PostgreSQL rejects NUL in texts, and half a surrogate pair cannot be encoded as UTF-8.
_SHOWN: Final = {0: "\ufffd"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


def claim_rows(
    connection: Connection,
    table: Table,
    *which: ColumnElement[bool],
    limit: int,
    share_by: ColumnElement[Any] | None = None,
    within: DeliveryLimit | None = None,
) -> Sequence[Row[Any]]:
    """Claim up to `limit` due, unclaimed rows, the longest due first.

    With `share_by`, for example a column of tenants, shares take turns: the longest due row of each, then the second.
    `within` also makes tenants take turns, and claims no more for each than its limit has left.
    """
    if within is not None:
        share_by = within.tenant
    key = next(iter(table.primary_key))
    free = table.c.claimed_until <= StoreClock()
    # Use the store's clock, which all claimers share. The clocks of their machines may differ.
    due = select(key).where(*which, table.c.due_at <= StoreClock(), free).order_by(table.c.due_at, key)
    if within is not None:
        # Rows of exhausted tenants keep their place in the queue until their tenant's limit allows more.
        due = due.where(within.tenant.not_in(within.select_exhausted()))
    if connection.execute(due.limit(1)).first() is None:
        # Without due rows, polling twice a second does not take SQLite's only write lock.
        return []
    if within is not None:
        within.hold(connection)
    chosen = due.limit(limit).with_for_update(skip_locked=True)
    if share_by is not None:
        place = func.row_number().over(partition_by=share_by, order_by=(table.c.due_at, key))
        columns = (table.c.due_at, place.label("place"), share_by.label("share"))
        ranked = due.order_by(None).add_columns(*columns).subquery()
        # Use a separate query, because PostgreSQL locks no rows of a ranking query. Rank all rows: rows being claimed
        # by others are skipped, and the first ones alone might all be.
        chosen = select(key).join(ranked, ranked.c[key.name] == key)
        if within is not None:
            chosen = within.restrict(chosen, ranked.c.place, ranked.c.share)
        chosen = chosen.order_by(ranked.c.place, ranked.c.due_at, ranked.c[key.name]).limit(limit)
        chosen = chosen.with_for_update(skip_locked=True, of=table)
    claiming = (
        update(table)
        # Check again when changing the row: a claimer that waited for it here finds it taken.
        .where(key.in_(chosen), free)
        # Count the attempt with the claim instead of the failure, so that a row that kills its claimers counts as well.
        .values(claimed_until=in_seconds(LEASE_SECONDS), attempts=table.c.attempts + 1)
        .returning(table)
    )
    # RETURNING guarantees no order.
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
    """As `claim_rows`, but sets a row aside if `read` raises `ValueError`: it does not block others."""
    key = next(iter(table.primary_key))
    rows = claim_rows(connection, table, *which, limit=limit, share_by=share_by, within=within)
    converted, odd = _read(rows, read)
    if odd:
        _log.error("%d rows of `%s` cannot be read and are set aside for %g s", len(odd), table.name, ASIDE_SECONDS)
        # Do not delete or fail it: a newer version may have written the row and can read it.
        aside = update(table).where(key.in_([row._mapping[key.name] for row in odd]))
        connection.execute(aside.values(due_at=in_seconds(ASIDE_SECONDS), claimed_until=0))
    return converted


def readable(rows: Iterable[Row[Any]], read: Callable[[Row[Any]], _T]) -> list[_T]:
    return _read(rows, read)[0]


def _read(rows: Iterable[Row[Any]], read: Callable[[Row[Any]], _T]) -> tuple[list[_T], list[Row[Any]]]:
    converted: list[_T] = []
    odd: list[Row[Any]] = []
    for row in rows:
        try:
            converted.append(read(row))
        except ValueError:
            # Do not log the content: it may be confidential.
            odd.append(row)
    return converted, odd


def in_seconds(seconds: float) -> ColumnElement[int]:
    return StoreClock() + round(seconds * 1000)


def clip_text(text: str, chars: int) -> str:
    """Replaces characters that a database would reject."""
    return text.translate(_SHOWN)[:chars]
