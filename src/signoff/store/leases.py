"""Leases rows to one of several processes for a while.

A killed process simply loses its lease.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import (
    ARRAY,
    BindParameter,
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    String,
    Table,
    TextClause,
    bindparam,
    func,
    select,
    true,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate

from signoff.store.limits.counted_acts import DeliveryLimit
from signoff.store.tables import NOW, StoreClock

LEASE_SECONDS: Final = 60.0
"""How long a claimed row belongs to its claimer."""
ASIDE_SECONDS: Final = 3_600.0
"""How long a row is set aside if this version cannot read it."""
_ONE_SHARE: Final = bindparam("of_share", type_=String)
_log = logging.getLogger(__name__)
_T = TypeVar("_T")
# PostgreSQL rejects NUL in texts, and half a surrogate pair cannot be encoded as UTF-8.
_SHOWN: Final = {0: "\ufffd"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


class LeaseQueue:
    """Rows that several processes claim, each for a lease.

    An index contains exactly the rows `waiting`, by the columns `of`, `share`, `free_at` and the key. Shares, for
    example tenants, take turns: the longest due row of each, then the second.

    A claim reads one entry of each share with a waiting row, due or not, and the rows that it takes. It passes over
    rows that another claimer has locked, and no others.
    """

    def __init__(self, table: Table, waiting: TextClause, *, share: str, of: Sequence[str] = ()) -> None:
        self.table = table
        self.key: ColumnElement[str] = next(iter(table.primary_key))
        self._share = table.c[share]
        self._which: tuple[ColumnElement[bool] | TextClause, ...] = (
            waiting,
            *(table.c[name] == bindparam(f"of_{name}") for name in of),
        )
        # Built once: building a statement takes longer than executing it.
        self._head = self._select_head(_ONE_SHARE)
        self._heads = self._select_heads()
        self._claims = {"sqlite": self._claim_of_one_share(), "postgresql": self._claim_of_shares()}

    def find_shares(self, connection: Connection, of: Mapping[str, str], only: str = "") -> list[str]:
        """Return the shares with a due row, that with the longest due first. `only` names the one to look at."""
        if only:
            return [only] if connection.scalar(self._head, _of(of) | {"of_share": only}) is not None else []
        heads = connection.execute(self._heads, _of(of)).all()
        return [share for since, share in sorted((head.since, head.share) for head in heads if head.since is not None)]

    def claim(self, connection: Connection, of: Mapping[str, str], wanted: Mapping[str, int]) -> list[Row[Any]]:
        """Claim up to `wanted` due rows of each share."""
        claiming = self._claims[connection.dialect.name]
        if connection.dialect.name == "postgresql":
            shares = {"of_shares": list(wanted), "of_numbers": list(wanted.values()), "of_all": sum(wanted.values())}
            return list(connection.execute(claiming, _of(of) | shares))
        each = ({"of_share": share, "of_number": number} for share, number in wanted.items())
        return [row for one in each for row in connection.execute(claiming, _of(of) | one)]

    def share_of(self, row: Row[Any]) -> str:
        return str(row._mapping[self._share.name])

    def _select_heads(self) -> Select[Any]:
        # Each step seeks the next share, however many rows the last one has.
        shares = select(func.min(self._share).label("share")).where(*self._which).cte("shares", recursive=True)
        following = select(func.min(self._share)).where(*self._which, self._share > shares.c.share)
        shares = shares.union_all(select(following.scalar_subquery()).where(shares.c.share.is_not(None)))
        since = self._select_head(shares.c.share).scalar_subquery().label("since")
        return select(shares.c.share, since).where(shares.c.share.is_not(None))

    def _select_head(self, share: ColumnElement[str]) -> Select[Any]:
        return select(func.min(self.table.c.free_at)).where(*self._which, self._share == share, self._is_due)

    def _select_due(self, share: ColumnElement[str], number: ColumnElement[int]) -> Select[Any]:
        due = select(self.key).where(*self._which, self._share == share, self._is_due)
        return due.order_by(self.table.c.free_at, self.key).limit(number)

    def _claim_of_one_share(self) -> ReturningUpdate[Any]:
        return self._claim(self._select_due(_ONE_SHARE, bindparam("of_number", type_=Integer)))

    def _claim_of_shares(self) -> ReturningUpdate[Any]:
        arrays = (bindparam("of_shares", type_=ARRAY(String)), bindparam("of_numbers", type_=ARRAY(Integer)))
        wanted = func.unnest(*arrays).table_valued("share", "number", name="wanted").render_derived()
        # A row that another claimer has just changed is checked again when it is locked.
        due = self._select_due(wanted.c.share, wanted.c.number).with_for_update(skip_locked=True).lateral("due")
        chosen = select(due.c[self.key.name]).select_from(wanted).join(due, true())
        # The written limit cuts nothing. From it, PostgreSQL knows that the rows are few, and reads them by their keys.
        # A locking CTE runs once. A subquery might run again, and lock more rows.
        limit: BindParameter[int] = bindparam("of_all", type_=Integer, literal_execute=True)
        return self._claim(select(chosen.limit(limit).cte("chosen")))

    def _claim(self, chosen: Select[Any]) -> ReturningUpdate[Any]:
        # Count the attempt with the claim instead of the failure, so that a row that kills its claimers counts as well.
        values = {"claimed_until": in_seconds(LEASE_SECONDS), "attempts": self.table.c.attempts + 1}
        return update(self.table).where(self.key.in_(chosen)).values(values).returning(self.table)

    @property
    def _is_due(self) -> ColumnElement[bool]:
        # Use the store's clock, which all claimers share. The clocks of their machines may differ.
        return self.table.c.free_at <= NOW


def claim_rows(
    connection: Connection,
    queue: LeaseQueue,
    of: Mapping[str, str],
    *,
    limit: int,
    only: str = "",
    without: Collection[str] = (),
    within: DeliveryLimit | None = None,
) -> Sequence[Row[Any]]:
    """Claim up to `limit` due rows, the longest due of each share first, then the second.

    `only` names the one share to claim from, `without` the shares to leave out. `within` limits the rows of each
    tenant. The queue's shares are then tenants.
    """
    shares = [share for share in queue.find_shares(connection, of, only) if share not in without]
    if not shares:
        return []
    left = dict.fromkeys(shares, limit)
    if within is not None:
        within.hold(connection)
        # Rows of exhausted tenants keep their place in the queue until their tenant's limit allows more.
        left = within.count_left(connection, shares)
    claimed: list[Row[Any]] = []
    while wanted := deal(left, limit - len(claimed)):
        rows = queue.claim(connection, of, wanted)
        claimed += rows
        got = Counter(map(queue.share_of, rows))
        # A share with fewer rows than wanted has no more.
        left = {
            share: number - got[share]
            for share, number in left.items()
            if share not in wanted or got[share] == wanted[share]
        }
    if within is not None:
        within.count(connection, claimed)
    # RETURNING guarantees no order.
    return sorted(claimed, key=lambda row: (row.due_at, row._mapping[queue.key.name]))


def deal(left: Mapping[str, int], number: int) -> dict[str, int]:
    """Return how many of `number` rows each share gets if shares take turns, each at most the rows that it has left."""
    dealt = dict.fromkeys(left, 0)
    while number > 0 and (unfilled := [share for share in left if dealt[share] < left[share]]):
        turns = max(number // len(unfilled), 1)
        for share in unfilled[:number]:
            given = min(turns, left[share] - dealt[share])
            dealt[share] += given
            number -= given
    return {share: given for share, given in dealt.items() if given}


def claim_readable(
    connection: Connection,
    queue: LeaseQueue,
    of: Mapping[str, str],
    *,
    limit: int,
    read: Callable[[Row[Any]], _T],
    only: str = "",
    within: DeliveryLimit | None = None,
) -> list[_T]:
    """As `claim_rows`, but sets a row aside if `read` raises `ValueError`: it does not block others."""
    rows = claim_rows(connection, queue, of, limit=limit, only=only, within=within)
    converted, odd = _read(rows, read)
    if odd:
        named = queue.table.name
        _log.error("%d rows of `%s` cannot be read and are set aside for %g s", len(odd), named, ASIDE_SECONDS)
        # Do not delete or fail it: a newer version may have written the row and can read it.
        aside = update(queue.table).where(queue.key.in_([row._mapping[queue.key.name] for row in odd]))
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


def _of(values: Mapping[str, str]) -> dict[str, Any]:
    return {f"of_{name}": value for name, value in values.items()}


def in_seconds(seconds: float) -> ColumnElement[int]:
    return StoreClock() + round(seconds * 1000)


def clip_text(text: str, chars: int) -> str:
    """Replaces characters that a database would reject."""
    return text.translate(_SHOWN)[:chars]
