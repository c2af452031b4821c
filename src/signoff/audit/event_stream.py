"""Numbers the events of each tenant, and reads them: whoever has read up to a number misses none by going on from it.

Nothing is written for them where things happen: the record is written there already, with what it tells of, in one
transaction. What was committed is numbered afterwards, by one at a time: a number is there together with its event, and
with all before it. A number given where things happen would need a lock on its tenant until that transaction ends, or
be there before a lower one of a transaction that ends later.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from heapq import merge
from typing import Final, NamedTuple, cast

from pydantic import ValidationError
from sqlalchemy import Connection, String, bindparam, delete, func, insert, select, tuple_, update

from signoff.audit.events import event_from_record
from signoff.audit.log import CHAIN
from signoff.audit.record import Record, bound_text
from signoff.contracts.audit import CloudEvent, EventList
from signoff.contracts.ids import parse_approval_id
from signoff.formats.replace import replace
from signoff.store.claim_conditions import insert_or_hold
from signoff.store.store import Store
from signoff.store.tables import AUDIT_HEADS, AUDIT_RECORDS, EVENT_FACTS, EVENT_HEADS, EVENTS, StoreClock

STREAMS_AT_ONCE: Final = 50
RECORDS_AT_ONCE: Final = 500
"""So many are numbered in one transaction: it holds the heads of their streams, where turns write."""
DAY_MILLISECONDS: Final = 86_400_000
_LOCK: Final = ""
"""The tenant whose row is locked by whoever numbers; no tenant is called so."""
_TENANT_CHARS: Final = cast(String, EVENTS.c.tenant.type).length or 0
_CALL_CHARS: Final = cast(String, EVENTS.c.call.type).length or 0
_ACTOR_CHARS: Final = cast(String, EVENTS.c.actor.type).length or 0

_TOLD_ONCE: Final = ("approval.withdrawn",)
"""What both a turn and whoever answers it record, each as its own word: one of them is told."""

_COLUMNS: Final = tuple(AUDIT_RECORDS.c[name] for name in Record.model_fields)
_GREW: Final = (AUDIT_HEADS.c.seq > AUDIT_HEADS.c.numbered, AUDIT_HEADS.c.stream != CHAIN)
_ANY: Final = select(AUDIT_HEADS.c.stream).where(*_GREW).limit(1)
_GROWN: Final = (
    select(AUDIT_HEADS.c.stream, AUDIT_HEADS.c.seq)
    .where(*_GREW)
    .order_by(AUDIT_HEADS.c.stream)
    .limit(STREAMS_AT_ONCE)
    # Who writes to a stream at this moment is not waited for: other turns would wait behind us for it. It comes next.
    .with_for_update(skip_locked=True, key_share=True)
)
_RECORDS: Final = (
    select(*_COLUMNS)
    .join(AUDIT_HEADS, AUDIT_HEADS.c.stream == AUDIT_RECORDS.c.stream)
    .where(
        AUDIT_RECORDS.c.stream.in_(bindparam("streams", expanding=True)),
        AUDIT_RECORDS.c.seq > AUDIT_HEADS.c.numbered,
    )
    .order_by(AUDIT_RECORDS.c.stream, AUDIT_RECORDS.c.seq)
    .limit(RECORDS_AT_ONCE)
)
_MARK: Final = update(AUDIT_HEADS).where(AUDIT_HEADS.c.stream == bindparam("of")).values(numbered=bindparam("to"))
_NUMBERS: Final = select(EVENT_HEADS.c.tenant, EVENT_HEADS.c.number).where(
    EVENT_HEADS.c.tenant.in_(bindparam("tenants", expanding=True))
)
_EARLIER: Final = (
    select(EVENTS.c.private, EVENTS.c.actor, EVENTS.c.body)
    .where(EVENTS.c.stream == bindparam("of"), EVENTS.c.call == bindparam("named"))
    .order_by(EVENTS.c.number)
)
_MORE: Final = select(EVENT_FACTS).where(EVENT_FACTS.c.stream.in_(bindparam("streams", expanding=True)))
_TAKE_MORE: Final = delete(EVENT_FACTS).where(
    tuple_(EVENT_FACTS.c.stream, EVENT_FACTS.c.key).in_(bindparam("places", expanding=True))
)
NEWEST: Final = select(EVENT_HEADS.c.number).where(EVENT_HEADS.c.tenant == bindparam("of"))
"""The number of the newest event `of` a tenant."""
_OLDEST: Final = select(func.min(EVENTS.c.number)).where(EVENTS.c.tenant == bindparam("of"))


class _NewEvent(NamedTuple):
    """An event with the call that it is about, before it has its number."""

    event: CloudEvent
    stream: str
    call: str
    actor: str
    private: bool
    body: str


class _EarlierEvent(NamedTuple):
    """An event that was numbered before another one about the same call."""

    private: bool
    actor: str
    body: str


class EventStream:
    """Numbers and reads the events in `store`; `is_private` says of a tool by its name whether it is a specialist.

    All methods raise `StoreUnavailable` when the database fails.
    """

    def __init__(self, store: Store, is_private: Callable[[str], bool]) -> None:
        self._store = store
        self._is_private = is_private

    async def extend(self) -> int:
        """Numbers the events of all that was recorded since; returns how many there were.

        What is being written to a stream at this moment is left for the next time.
        """
        count = 0
        # Asked without a write: whoever only looks does not take SQLite's one lock.
        while await self._store.read(lambda connection: connection.execute(_ANY).first()) is not None:
            done = await self._store.run(self._extend)
            if done is None:
                break
            count += done
        return count

    async def read(
        self, tenant: str, after: int, *, limit: int, stream: str = "", with_private: bool = False
    ) -> EventList:
        """Returns the events of `tenant` after a number, of one stream where named; specialists' only where asked."""
        wanted = select(EVENTS.c.number, EVENTS.c.private, EVENTS.c.body).where(
            EVENTS.c.tenant == tenant, EVENTS.c.number > after
        )
        if stream:
            wanted = wanted.where(EVENTS.c.stream == stream)
        if not with_private:
            wanted = wanted.where(EVENTS.c.private.is_(False))

        def work(connection: Connection) -> EventList:
            # First: an event that is numbered from now on is found by the next reading.
            newest = connection.scalar(NEWEST, {"of": tenant}) or 0
            rows = connection.execute(
                wanted.where(EVENTS.c.number <= newest).order_by(EVENTS.c.number).limit(limit)
            ).all()
            oldest = connection.scalar(_OLDEST, {"of": tenant})
            events = tuple(
                event for row in rows if (event := read_event(row.number, row.private, row.body)) is not None
            )
            goes_on = rows[-1].number if len(rows) == limit else newest
            return EventList(
                events=events, next=goes_on, oldest=newest + 1 if oldest is None else oldest, newest=newest
            )

        return await self._store.read(work)

    async def remove_old(self, days: int) -> int:
        """Removes the events that were numbered more than `days` days ago; returns how many there were."""
        old = delete(EVENTS).where(EVENTS.c.numbered_at < StoreClock() - days * DAY_MILLISECONDS)
        return await self._store.run(lambda connection: connection.execute(old).rowcount)

    def _extend(self, connection: Connection) -> int | None:
        """Numbers one batch; returns None where nothing could be taken."""
        hold = insert_or_hold(EVENT_HEADS, "number", connection.dialect.name)
        connection.execute(hold, {"tenant": _LOCK, "number": 0})
        heads = {row.stream: row.seq for row in connection.execute(_GROWN)}
        if not heads:
            return None
        rows = connection.execute(_RECORDS, {"streams": list(heads)}).all()
        records = [Record.model_construct(**row._mapping) for row in rows]
        self._insert(connection, _in_order(records), _take_more(connection, records))
        read = {record.stream: record.seq for record in records}
        numbered = {stream: max(seq, read.get(stream, 0)) for stream, seq in heads.items()}
        if len(records) == RECORDS_AT_ONCE:
            # Of the last stream the rest comes next, and so does all of those that have no record here.
            numbered = {stream: numbered[stream] for stream in read} | {records[-1].stream: records[-1].seq}
        connection.execute(_MARK, [{"of": stream, "to": seq} for stream, seq in numbered.items()])
        return len(records)

    def _insert(self, connection: Connection, records: Sequence[Record], more: Mapping[tuple[str, str], str]) -> None:
        found: list[_NewEvent] = []
        for record in records:
            event = self._new_event(connection, record, more.get((record.stream, record.key), "{}"), found)
            if event is not None:
                found.append(event)
        if not found:
            return
        tenants = sorted({each.event.tenant for each in found})
        numbers = {row.tenant: row.number for row in connection.execute(_NUMBERS, {"tenants": tenants})}
        known, rows = set(numbers), []
        for each in found:
            tenant = each.event.tenant
            numbers[tenant] = numbers.get(tenant, 0) + 1
            rows.append({"tenant": tenant, "number": numbers[tenant], **each._asdict()})
            del rows[-1]["event"]
        connection.execute(insert(EVENTS), rows)
        for tenant in tenants:
            if tenant in known:
                connection.execute(
                    update(EVENT_HEADS).where(EVENT_HEADS.c.tenant == tenant).values(number=numbers[tenant])
                )
            else:
                connection.execute(insert(EVENT_HEADS).values(tenant=tenant, number=numbers[tenant]))

    def _new_event(
        self, connection: Connection, record: Record, more: str, before: Sequence[_NewEvent]
    ) -> _NewEvent | None:
        try:
            event = event_from_record(record, json.loads(more))
            if event is None or len(event.tenant) > _TENANT_CHARS:
                return None
            named = parse_approval_id(str(event.data.get("approval", "")))
            call = "" if named is None else bound_text(named.call, _CALL_CHARS)
            # An answer names its request alone, which was numbered before it, with tool and actor.
            earlier = _earlier(connection, record.stream, call, before) if call else []
            if event.type in _TOLD_ONCE and any(_is_same(event, each.body) for each in earlier):
                return None
            private = event.private or self._is_hidden(event, call, [each.private for each in earlier])
            # The first that was seen stands: a call is of one actor, whatever is said of it later.
            actor = next((each.actor for each in earlier if each.actor), event.actor)[:_ACTOR_CHARS]
            # In the form in which it is answered: what cannot be written so now could not be then.
            body = replace(event, private=private, actor=actor).model_dump_json()
        except Exception:
            # Whoever runs under a turn's id writes what they like: one record must not hold up all others.
            return None
        return _NewEvent(event, record.stream, call, actor, private, body)

    def _is_hidden(self, event: CloudEvent, call: str, earlier: Sequence[bool]) -> bool:
        """Returns whether an event is of a specialist; also where that cannot be known."""
        if "tool" in event.data:
            return self._is_private(str(event.data["tool"]))
        return (any(earlier) or not earlier) if call else "approval" in event.data


def _earlier(connection: Connection, stream: str, call: str, before: Sequence[_NewEvent]) -> list[_EarlierEvent]:
    """Returns the earlier events about a call, oldest first."""
    rows = connection.execute(_EARLIER, {"of": stream, "named": call}).all()
    found = [_EarlierEvent(bool(row.private), row.actor, row.body) for row in rows]
    same = (each for each in before if (each.stream, each.call) == (stream, call))
    return found + [_EarlierEvent(each.private, each.actor, each.body) for each in same]


def _is_same(event: CloudEvent, body: str) -> bool:
    """Returns whether an earlier event told the same of the same revision of a request."""
    earlier = read_event(0, False, body)
    if earlier is None or earlier.type != event.type:
        return False
    return earlier.data.get("revision") == event.data.get("revision")


def _take_more(connection: Connection, records: Sequence[Record]) -> dict[tuple[str, str], str]:
    """Takes away what the events of `records` tell beside them, and returns it by stream and key."""
    places = {(record.stream, record.key) for record in records}
    rows = connection.execute(_MORE, {"streams": sorted({record.stream for record in records})}).all()
    more = {(row.stream, row.key): row.body for row in rows if (row.stream, row.key) in places}
    if more:
        connection.execute(_TAKE_MORE, {"places": sorted(more)})
    return more


def _in_order(records: Sequence[Record]) -> list[Record]:
    """Orders records by the times at which they were written, and those of one stream by their numbers."""
    by_stream: dict[str, list[Record]] = {}
    for record in records:
        by_stream.setdefault(record.stream, []).append(record)
    # Merged, not sorted: the store's clock may be set back, and within a stream the numbers alone tell the order.
    return list(merge(*by_stream.values(), key=lambda record: record.written_at))


def read_event(number: int, private: bool, body: str) -> CloudEvent | None:
    """Parses a row of events; None for one that holds none."""
    try:
        event = CloudEvent.model_validate_json(body)
    except ValidationError:
        # Who can write to the database can put anything there: it must not keep the others from being read.
        return None
    return replace(event, number=number, private=private)
