"""Work that several processes share: a row is claimed for a while, and whoever is killed loses it by that."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Table, select, update

from signoff.store.schema import StoreClock

LEASE_SECONDS: Final = 60.0
"""How long a claimed row is left to its claimer."""
_SHOWN: Final = {0: "\ufffd"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


def take(connection: Connection, table: Table, *which: ColumnElement[bool], limit: int) -> Sequence[Row[Any]]:
    """Claim at most `limit` rows that are due, nobody's, and as `which` says; the longest due come first."""
    key = next(iter(table.primary_key))
    free = table.c.claimed_until <= StoreClock()
    due = select(key).where(*which, table.c.due_at <= StoreClock(), free).order_by(table.c.due_at, key)
    if connection.execute(due.limit(1)).first() is None:
        # Who only looks, twice a second, does not take SQLite's one lock for writing.
        return []
    claiming = (
        update(table)
        # Asked again where the row is changed: whoever waited for it there finds it taken.
        .where(key.in_(due.limit(limit).with_for_update(skip_locked=True)), free)
        .values(claimed_until=in_seconds(LEASE_SECONDS), attempts=table.c.attempts + 1)
        .returning(table)
    )
    return sorted(connection.execute(claiming).all(), key=lambda row: (row.due_at, row._mapping[key.name]))


def in_seconds(seconds: float) -> ColumnElement[int]:
    """The store's time that many seconds from now."""
    return StoreClock() + round(seconds * 1000)


def kept(text: str, chars: int) -> str:
    """At most so many characters of a text from outside, as every database takes it."""
    return text.translate(_SHOWN)[:chars]
