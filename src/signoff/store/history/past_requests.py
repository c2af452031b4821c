"""Stores the past requests, and finds them by readers, properties and words.

Only the gateway uses these tables. A row is a copy of shown facts: it gives no permission, and nothing runs by it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from zlib import crc32

from sqlalchemy import (
    Connection,
    Insert,
    Select,
    Text,
    bindparam,
    cast,
    delete,
    func,
    insert,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import TSQUERY
from sqlalchemy.exc import IntegrityError

from signoff.contracts.ids import TurnKey
from signoff.store.history.search_words import mark
from signoff.store.tables import (
    NOW,
    PAST_REQUESTS,
    QUESTIONS,
    UNINDEXED_REQUESTS,
    millis_from_time,
    time_from_millis,
)

COUNTED: Final = 1_000
"""The largest count. Counting on would read every row of a frequent word."""
NEWEST: Final = 5_000
"""Rows that a search reads before PostgreSQL's index of words."""
SLOTS: Final = 4_096
"""Requests that may end in the same millisecond."""
_PAST: Final = PAST_REQUESTS.c
_LATER: Final = UNINDEXED_REQUESTS.c
# The full-text index of SQLite has the numbers of the rows.
_PLACE: Final = literal_column("past_words.rowid", _PAST.number.type)
_ROWS: Final = (_PAST.number, _PAST.body, _PAST.readers)


@dataclass(frozen=True)
class PastRow:
    """A past request, as stored."""

    approval: str
    tenant: str
    stream: str
    """The workflow id of its turn, which also names its record."""
    over_at: datetime
    """When it was decided or ended, in UTC."""
    body: str
    """JSON of the reader's part."""
    readers: str
    """JSON of its audience."""
    words: tuple[str, ...]
    """The words of its text, and its marks."""


@dataclass(frozen=True)
class PastSearch:
    """The wanted rows: each of `groups` is met by at least one of its words."""

    groups: tuple[Collection[str], ...]
    since: datetime | None = None
    until: datetime | None = None
    """Exclusive."""

    @property
    def never(self) -> bool:
        """True if no row can match: no word meets an empty group."""
        return not all(self.groups)


class FoundRow(NamedTuple):
    """One row of a page."""

    number: int
    """Its place: a later end has a larger number."""
    body: str
    readers: str


@dataclass(frozen=True)
class PastPage:
    """A page, newest first, and the count of all rows that match, at most `COUNTED`."""

    rows: Sequence[FoundRow]
    count: int


def search_past(connection: Connection, wanted: PastSearch, before: int | None, limit: int) -> PastPage:
    """`before` is the number of the last row of the previous page."""
    if wanted.never:
        return PastPage((), 0)
    if connection.dialect.name == "sqlite":
        return PastPage(_find(connection, wanted, before, limit), _count(connection, wanted, COUNTED))
    # Reading the whole table looks cheap for a frequent word, even if all of its rows are old ones.
    connection.execute(text("SET LOCAL enable_seqscan = off"))
    # The index of words reads all places of a frequent word: look for it among the newest rows first.
    count = len(_find_newest(connection, wanted, None, COUNTED))
    count = count if count == COUNTED else _count(connection, wanted, COUNTED)
    if count < COUNTED:
        return PastPage(_find(connection, wanted, before, limit), count)
    found = _find_newest(connection, wanted, before, limit)
    return PastPage(found if len(found) == limit else _find_by_month(connection, wanted, before, limit), count)


def find_seen(connection: Connection, wanted: PastSearch, words: Collection[str]) -> frozenset[str]:
    """Return the `words` of matching rows."""
    if wanted.never or not words:
        return frozenset()
    seen: frozenset[str] = frozenset()
    if connection.dialect.name == "postgresql":
        # As for searches. The rest is rare or new.
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        seen = _find_seen_newest(connection, wanted, sorted(words))
    left = [each for each in words if each not in seen]
    return seen | {each for each in left if _count(connection, replace(wanted, groups=(*wanted.groups, (each,))), 1)}


def _find_seen_newest(connection: Connection, wanted: PastSearch, words: Sequence[str]) -> frozenset[str]:
    newest = _within(select(_PAST.words), _PAST.number, wanted, None).order_by(_PAST.number.desc()).limit(NEWEST)
    rows = newest.subquery().c
    columns = [func.bool_or(_has_words(rows.words, PastSearch(((each,),)))) for each in words]
    some = _has_words(rows.words, replace(wanted, groups=(*wanted.groups, words)))
    found = connection.execute(select(*columns).where(some)).one()
    return frozenset(each for each, is_seen in zip(words, found, strict=True) if is_seen)


def _find_newest(connection: Connection, wanted: PastSearch, before: int | None, limit: int) -> Sequence[FoundRow]:
    newest = _within(select(PAST_REQUESTS), _PAST.number, wanted, before).order_by(_PAST.number.desc()).limit(NEWEST)
    rows = newest.subquery().c
    query = select(rows.number, rows.body, rows.readers).where(_has_words(rows.words, wanted))
    return [FoundRow(*row) for row in connection.execute(query.order_by(rows.number.desc()).limit(limit))]


def _find(connection: Connection, wanted: PastSearch, before: int | None, limit: int) -> Sequence[FoundRow]:
    query, place = select_past(connection, wanted, *_ROWS), place_of(connection)
    if before is not None:
        query = query.where(place < before)
    if connection.dialect.name == "postgresql":
        # Few rows: read them by their words. The order of numbers could lead through every row of the table.
        few = query.cte("few").prefix_with("MATERIALIZED", dialect="postgresql")
        query, place = select(few), few.c.number
    return [FoundRow(*row) for row in connection.execute(query.order_by(place.desc()).limit(limit))]


def _find_by_month(connection: Connection, wanted: PastSearch, before: int | None, limit: int) -> list[FoundRow]:
    """PostgreSQL's index does not know the order of numbers: a search for many rows reads month after month.

    After a part without rows the next is twice as long. A long one with many rows is split.
    """
    found: list[FoundRow] = []
    months, growth = 1, 2
    newest, oldest = connection.execute(select(func.max(_PAST.number), func.min(_PAST.number))).one()
    newest = newest if before is None else min(newest, before)
    end = _month_after(time_from_millis(newest // SLOTS))
    while len(found) < limit and end > time_from_millis(oldest // SLOTS):
        starts = _months_before(end, months)
        start = starts[-1]
        part = PastSearch((*wanted.groups, [_month_mark(each) for each in starts]), wanted.since, wanted.until)
        count, left = _count(connection, part, COUNTED, before), limit - len(found)
        if count == COUNTED and months > 1:
            # Its rows may all be old ones: reading it from its end would pass all others.
            months, growth = max(1, months // 8), 1
            continue
        if 0 < count < COUNTED:
            found += _find(connection, part, before, left)
        elif count:
            dense = select_past(connection, wanted, *_ROWS).where(_PAST.number >= millis_from_time(start) * SLOTS)
            dense = dense.where(_PAST.number < min(newest + (before is None), millis_from_time(end) * SLOTS))
            rows = connection.execute(dense.order_by(_PAST.number.desc()).limit(left))
            found += [FoundRow(*row) for row in rows]
        end, months = start, months if count else growth * months
    return found


def _months_before(end: datetime, number: int) -> list[datetime]:
    """Return the starts of months before `end`, newest first."""
    starts: list[datetime] = []
    for _ in range(number):
        end = _month_of(end - timedelta(days=1))
        starts.append(end)
    return starts


def _month_of(moment: datetime) -> datetime:
    return moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _month_after(moment: datetime) -> datetime:
    return _month_of(_month_of(moment) + timedelta(days=32))


def _month_mark(moment: datetime) -> str:
    return mark("", "month", f"{moment:%Y-%m}")


def put_past(connection: Connection, row: PastRow) -> None:
    """Replace the request's row. Call only after `hold_due`."""
    remove_past(connection, row.approval)
    add, first = build_insert(connection.dialect.name), crc32(row.approval.encode())
    for step in range(SLOTS):
        try:
            with connection.begin_nested():
                connection.execute(add, insert_values(row, (first + step) % SLOTS))
            return
        except IntegrityError:
            # Another request ended in the same millisecond and has this number.
            continue
    raise OverflowError(f"more than {SLOTS} requests ended in one millisecond")


def build_insert(dialect: str) -> Insert:
    """Its values come from `insert_values`."""
    words: Any = bindparam("written", type_=Text())
    if dialect == "postgresql":
        words = func.array_to_tsvector(func.string_to_array(words, " "))
    return insert(PAST_REQUESTS).values(words=words)


def insert_values(row: PastRow, slot: int) -> dict[str, Any]:
    """`slot` differs from that of other rows in the same millisecond."""
    values = {name: getattr(row, name) for name in ("approval", "tenant", "stream", "body", "readers")}
    written = " ".join((*row.words, _month_mark(row.over_at)))
    return {"number": millis_from_time(row.over_at) * SLOTS + slot, "written": written, **values}


def remove_past(connection: Connection, approval: str) -> None:
    connection.execute(delete(PAST_REQUESTS).where(_PAST.approval == approval))


def remove_past_of(connection: Connection, turn: TurnKey) -> None:
    """Remove the requests of a turn. Call before the removal of its questions."""
    of_turn = (QUESTIONS.c.tenant == turn.tenant, QUESTIONS.c.session == turn.session, QUESTIONS.c.turn == turn.turn)
    # Start with the due ones: an indexer holds them until its rows are visible here.
    asked = select(QUESTIONS.c.approval).where(*of_turn)
    connection.execute(delete(UNINDEXED_REQUESTS).where(_LATER.approval.in_(asked)))
    connection.execute(delete(PAST_REQUESTS).where(_PAST.stream == turn.workflow_id))


def list_due(connection: Connection, limit: int) -> Sequence[str]:
    """Return the requests to index now, longest due first."""
    query = select(_LATER.approval).where(_LATER.due_at <= NOW).order_by(_LATER.due_at, _LATER.approval)
    return connection.scalars(query.limit(limit)).all()


def hold_due(connection: Connection, approval: str) -> bool:
    """Return whether the request is still to be indexed. Its next change waits until the transaction ends."""
    query = select(_LATER.approval).where(_LATER.approval == approval).with_for_update()
    return connection.scalar(query) is not None


def settle_due(connection: Connection, approval: str, again: datetime | None) -> None:
    """Remove a due request, or move it to `again`."""
    if again is None:
        connection.execute(delete(UNINDEXED_REQUESTS).where(_LATER.approval == approval))
    else:
        change = update(UNINDEXED_REQUESTS).where(_LATER.approval == approval)
        connection.execute(change.values(due_at=millis_from_time(again)))


def place_of(connection: Connection) -> Any:
    return _PLACE if connection.dialect.name == "sqlite" else _PAST.number


def _count(connection: Connection, wanted: PastSearch, limit: int, before: int | None = None) -> int:
    place = place_of(connection)
    some = select_past(connection, wanted, place)
    some = some if before is None else some.where(place < before)
    return connection.scalar(select(func.count()).select_from(some.limit(limit).subquery())) or 0


def select_past(connection: Connection, wanted: PastSearch, *columns: Any) -> Select[Any]:
    query = select(*columns)
    if connection.dialect.name == "sqlite":
        named = " AND ".join(f"({' OR '.join(_quoted(group, DOUBLE))})" for group in wanted.groups)
        words = text("past_words")
        query = query.select_from(words).where(text("past_words MATCH :named").bindparams(named=named))
        if any(each is not _PLACE for each in columns):
            query = query.where(_PAST.number == _PLACE)
    else:
        query = query.where(_has_words(_PAST.words, wanted))
    return _within(query, place_of(connection), wanted, None)


def _has_words(words: Any, wanted: PastSearch) -> Any:
    named = " & ".join(f"({' | '.join(_quoted(group, SINGLE))})" for group in wanted.groups)
    # As a literal: a plan for any words would read the whole table.
    return words.op("@@")(cast(bindparam("named", named, unique=True, literal_execute=True), TSQUERY))


def _within(query: Select[Any], place: Any, wanted: PastSearch, before: int | None) -> Select[Any]:
    if wanted.since is not None:
        query = query.where(place >= millis_from_time(wanted.since) * SLOTS)
    if wanted.until is not None:
        query = query.where(place < millis_from_time(wanted.until) * SLOTS)
    return query if before is None else query.where(place < before)


SINGLE: Final = "'"
DOUBLE: Final = '"'


def _quoted(group: Collection[str], quote: str) -> list[str]:
    # Words contain only letters and digits, and marks a sign before them: no quote can end early.
    return [f"{quote}{each}{quote}" for each in sorted(group)]
