"""Counts past requests in groups, with the rights of a search."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import BigInteger, Connection, DateTime, case, cast, extract, func, literal, select, text
from sqlalchemy.dialects.postgresql import JSONB

from signoff.store.history.past_requests import SLOTS, PastSearch, place_of, select_past
from signoff.store.tables import PAST_REQUESTS

_JULIAN_EPOCH: Final = 2_440_587.5
_DAY_MILLIS: Final = 86_400_000
_SECOND_MILLIS: Final = 1_000
SLICE: Final = timedelta(minutes=15)
"""A day starts at a multiple of it in every time zone."""
_SLICE_MILLIS: Final = SLICE // timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class PastCount(NamedTuple):
    """The number of past requests with the same properties."""

    tool: str
    rule: str
    """The label of the rule that asked, or ""."""
    state: str
    person: str
    """The deciding person's id. "" if there is none, or if the reader may not see it."""
    channel: str
    seconds: int | None
    """To the end, rounded up. `None` if the start is unknown."""
    requests: int


def count_past(
    connection: Connection, wanted: PastSearch, persons: Collection[str] | None, limit: int
) -> Sequence[PastCount]:
    """Count the newest `limit` requests, without those about an unknown outcome.

    Names `persons` alone, or all people with `None`.
    """
    if wanted.never:
        return ()
    postgresql = _avoid_scan(connection)
    written = PAST_REQUESTS.c.body
    # Parse each body once: PostgreSQL would parse it again for each field.
    parsed = cast(written, JSONB).label("body") if postgresql else written
    newest = select_past(connection, wanted, PAST_REQUESTS.c.number, parsed)
    rows = newest.order_by(place_of(connection).desc()).limit(limit).subquery().c

    def field(name: str) -> Any:
        return rows.body[name].astext if postgresql else func.json_extract(rows.body, f"$.{name}")

    decider = func.coalesce(field("decided_by"), "")
    person = decider if persons is None else case((decider.in_(persons), decider), else_="")
    millis = rows.number // literal(SLOTS, BigInteger) - _opened_at(field("opened_at"), postgresql=postgresql)
    # Compute these in an inner query: PostgreSQL does not recognise an expression with values in GROUP BY.
    facts = (
        select(
            field("tool").label("tool"),
            func.coalesce(field("rule"), "").label("rule"),
            field("state").label("state"),
            person.label("person"),
            func.coalesce(field("channel"), "").label("channel"),
            ((millis + (_SECOND_MILLIS - 1)) // _SECOND_MILLIS).label("seconds"),
        )
        .where(field("kind") == "approval")
        .subquery()
        .c
    )
    return [PastCount._make(row) for row in connection.execute(select(*facts, func.count()).group_by(*facts))]


def count_slices(connection: Connection, wanted: PastSearch, limit: int) -> dict[datetime, int]:
    """Count the newest `limit` requests by the start of their `SLICE`. Reads no body."""
    if wanted.never:
        return {}
    _avoid_scan(connection)
    place = place_of(connection)
    numbers = select_past(connection, wanted, place).with_only_columns(place.label("number"))
    newest = numbers.order_by(place.desc()).limit(limit).subquery().c
    slices = select((newest.number // literal(SLOTS * _SLICE_MILLIS, BigInteger)).label("slice")).subquery().c
    rows = connection.execute(select(slices.slice, func.count()).group_by(slices.slice))
    return {_EPOCH + number * SLICE: requests for number, requests in rows}


def _avoid_scan(connection: Connection) -> bool:
    """Return whether it is PostgreSQL."""
    if connection.dialect.name != "postgresql":
        return False
    # As for searches: the planner would read the whole table.
    connection.execute(text("SET LOCAL enable_seqscan = off"))
    return True


def _opened_at(written: Any, *, postgresql: bool) -> Any:
    if postgresql:
        return cast(extract("epoch", cast(written, DateTime(timezone=True))) * _SECOND_MILLIS, BigInteger)
    return cast(func.round((func.julianday(written) - _JULIAN_EPOCH) * _DAY_MILLIS), BigInteger)
