"""Numbers the events of each tenant and reads them.

A reader that continues from a number misses none. One process at a time numbers committed records, so that a number
appears together with its event and all earlier ones. Numbering in the original transaction would need a lock on its
tenant until it ends. Otherwise a number could appear before a lower one from a transaction that ends later.
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
"""The limit of one transaction, which locks the heads of its streams, where turns write."""
DAY_MILLISECONDS: Final = 86_400_000
_LOCK: Final = ""
"""The tenant whose row is locked while numbering. No real tenant has this name."""
_TENANT_CHARS: Final = cast(String, EVENTS.c.tenant.type).length or 0
_CALL_CHARS: Final = cast(String, EVENTS.c.call.type).length or 0
_ACTOR_CHARS: Final = cast(String, EVENTS.c.actor.type).length or 0

_TOLD_ONCE: Final = ("approval.withdrawn",)
"""Types that both a turn and the decider's gateway record. Only one becomes an event."""

_COLUMNS: Final = tuple(AUDIT_RECORDS.c[name] for name in Record.model_fields)
_GREW: Final = (AUDIT_HEADS.c.seq > AUDIT_HEADS.c.numbered, AUDIT_HEADS.c.stream != CHAIN)
_ANY: Final = select(AUDIT_HEADS.c.stream).where(*_GREW).limit(1)
_GROWN: Final = (
    select(AUDIT_HEADS.c.stream, AUDIT_HEADS.c.seq)
    .where(*_GREW)
    .order_by(AUDIT_HEADS.c.stream)
    .limit(STREAMS_AT_ONCE)
    # Do not wait for a current writer of a stream: other turns would then wait for us. The stream is read next time.
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
"""The number of the newest event of the tenant `of`."""
_OLDEST: Final = select(func.min(EVENTS.c.number)).where(EVENTS.c.tenant == bindparam("of"))


class _NewEvent(NamedTuple):
    event: CloudEvent
    stream: str
    call: str
    actor: str
    private: bool
    body: str


class _EarlierEvent(NamedTuple):
    """An event numbered before another one about the same call."""

    private: bool
    actor: str
    body: str


class EventStream:
    """Numbers and reads the events in `store`.

    `is_private` returns whether a tool is a specialist's. All methods raise `StoreUnavailable`.
    """

    def __init__(self, store: Store, is_private: Callable[[str], bool]) -> None:
        self._store = store
        self._is_private = is_private

    async def extend(self) -> int:
        """Return the number of new events. Leaves out streams that are being written until the next time."""
        count = 0
        # Check without a write, so that polling does not take SQLite's only lock.
        while await self._store.read(lambda connection: connection.execute(_ANY).first()) is not None:
            numbered = await self._store.run(self._extend)
            if numbered is None:
                break
            count += numbered
        return count

    async def read(
        self, tenant: str, after: int, *, limit: int, stream: str = "", with_private: bool = False
    ) -> EventList:
        """Includes specialists' events only with `with_private`."""
        wanted = select(EVENTS.c.number, EVENTS.c.private, EVENTS.c.body).where(
            EVENTS.c.tenant == tenant, EVENTS.c.number > after
        )
        if stream:
            wanted = wanted.where(EVENTS.c.stream == stream)
        if not with_private:
            wanted = wanted.where(EVENTS.c.private.is_(False))

        def work(connection: Connection) -> EventList:
            # Read this first: events numbered from now on are found by the next call.
            newest = connection.scalar(NEWEST, {"of": tenant}) or 0
            rows = connection.execute(
                wanted.where(EVENTS.c.number <= newest).order_by(EVENTS.c.number).limit(limit)
            ).all()
            oldest = connection.scalar(_OLDEST, {"of": tenant})
            events = tuple(
                event for row in rows if (event := read_event(row.number, row.private, row.body)) is not None
            )
            position = rows[-1].number if len(rows) == limit else newest
            return EventList(
                events=events, next=position, oldest=newest + 1 if oldest is None else oldest, newest=newest
            )

        return await self._store.read(work)

    async def remove_old(self, days: int) -> int:
        """Delete events numbered more than `days` days ago. Return their number."""
        old = delete(EVENTS).where(EVENTS.c.numbered_at < StoreClock() - days * DAY_MILLISECONDS)
        return await self._store.run(lambda connection: connection.execute(old).rowcount)

    def _extend(self, connection: Connection) -> int | None:
        """Return `None` if no stream could be locked."""
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
            # Leave the rest of the last stream, and streams without a record here, for the next batch.
            numbered = {stream: numbered[stream] for stream in read} | {records[-1].stream: records[-1].seq}
        connection.execute(_MARK, [{"of": stream, "to": seq} for stream, seq in numbered.items()])
        return len(records)

    def _insert(self, connection: Connection, records: Sequence[Record], more: Mapping[tuple[str, str], str]) -> None:
        events: list[_NewEvent] = []
        for record in records:
            event = self._new_event(connection, record, more.get((record.stream, record.key), "{}"), events)
            if event is not None:
                events.append(event)
        if not events:
            return
        tenants = sorted({each.event.tenant for each in events})
        numbers = {row.tenant: row.number for row in connection.execute(_NUMBERS, {"tenants": tenants})}
        existing, rows = set(numbers), []
        for each in events:
            tenant = each.event.tenant
            numbers[tenant] = numbers.get(tenant, 0) + 1
            rows.append({"tenant": tenant, "number": numbers[tenant], **each._asdict()})
            del rows[-1]["event"]
        connection.execute(insert(EVENTS), rows)
        for tenant in tenants:
            if tenant in existing:
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
            # A decision names only its request, which was numbered earlier, with tool and actor.
            earlier = _earlier(connection, record.stream, call, before) if call else []
            if event.type in _TOLD_ONCE and any(_is_same(event, each.body) for each in earlier):
                return None
            private = event.private or self._is_hidden(event, call, [each.private for each in earlier])
            # Keep the first actor: a call belongs to one actor, even if later records claim otherwise.
            actor = next((each.actor for each in earlier if each.actor), event.actor)[:_ACTOR_CHARS]
            # Use the response's format: an event that cannot be encoded now could not be returned later.
            body = replace(event, private=private, actor=actor).model_dump_json()
        except Exception:
            # Anyone who runs under a turn's id can write anything: one record must not block all others.
            return None
        return _NewEvent(event, record.stream, call, actor, private, body)

    def _is_hidden(self, event: CloudEvent, call: str, earlier: Sequence[bool]) -> bool:
        """True for a specialist's event, and for an unknown call or request."""
        if "tool" in event.data:
            return self._is_private(str(event.data["tool"]))
        return (any(earlier) or not earlier) if call else "approval" in event.data


def _earlier(connection: Connection, stream: str, call: str, before: Sequence[_NewEvent]) -> list[_EarlierEvent]:
    """Oldest first."""
    rows = connection.execute(_EARLIER, {"of": stream, "named": call}).all()
    events = [_EarlierEvent(bool(row.private), row.actor, row.body) for row in rows]
    same = (each for each in before if (each.stream, each.call) == (stream, call))
    return events + [_EarlierEvent(each.private, each.actor, each.body) for each in same]


def _is_same(event: CloudEvent, body: str) -> bool:
    earlier = read_event(0, False, body)
    if earlier is None or earlier.type != event.type:
        return False
    return earlier.data.get("revision") == event.data.get("revision")


def _take_more(connection: Connection, records: Sequence[Record]) -> dict[tuple[str, str], str]:
    """Remove the additional event facts of `records`, and return them by stream and key."""
    places = {(record.stream, record.key) for record in records}
    rows = connection.execute(_MORE, {"streams": sorted({record.stream for record in records})}).all()
    more = {(row.stream, row.key): row.body for row in rows if (row.stream, row.key) in places}
    if more:
        connection.execute(_TAKE_MORE, {"places": sorted(more)})
    return more


def _in_order(records: Sequence[Record]) -> list[Record]:
    """By time of writing, and within a stream by number."""
    by_stream: dict[str, list[Record]] = {}
    for record in records:
        by_stream.setdefault(record.stream, []).append(record)
    # Merge instead of sorting: the store's clock may be set back, and only numbers order a stream.
    return list(merge(*by_stream.values(), key=lambda record: record.written_at))


def read_event(number: int, private: bool, body: str) -> CloudEvent | None:
    try:
        event = CloudEvent.model_validate_json(body)
    except ValidationError:
        # An attacker who can write to the database can store anything. It must not block the other events.
        return None
    return replace(event, number=number, private=private)
