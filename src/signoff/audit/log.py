"""Appends each entry once at the end of its stream, then counts and logs it."""

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, NamedTuple, get_args

from sqlalchemy import Connection, Row, bindparam, insert, select, tuple_, update

from signoff.audit.record import FIRST, Record, bound_text, place_record, record_from_entry
from signoff.contracts.audit import AuditEntry, EventEntry
from signoff.contracts.canonical_json import canonical_json
from signoff.contracts.turn import FinalState
from signoff.store.claim_conditions import insert_new, insert_or_hold
from signoff.store.store import AFTER_COMMIT, Store
from signoff.store.tables import AUDIT_HEADS, AUDIT_RECORDS, EVENT_FACTS, StoreClock
from signoff.telemetry.counts import Count, ProcessCounts
from signoff.telemetry.json_log import FACTS, RECORD_LOGGER, fields_of_turn
from signoff.telemetry.metric_table import OTHER

_LOGGED: Final = (
    "tool", "actor", "code", "gate", "verdict", "status", "receipt", "channel", "event", "state", "ended", "error",
    "act", "revision", "duration_ms",
)  # fmt: skip
_log = logging.getLogger(RECORD_LOGGER)
# A program's own level may be lower. Show these lines only if they are enabled explicitly.
_log.setLevel(logging.WARNING)

_ASKED: Final = ("request", "revision", "in_doubt")
_TIMED: Final = ("remind", "escalate", "deadline")
_ENDS: Final = frozenset((*get_args(FinalState), "failed", "terminated", "timed_out"))
"""End states of turns, including those set by Temporal."""
_CARDS: Final = {
    "sent": "sent",
    "reminded": "reminded",
    "failed": "failed",
    "closed": "closed",
    "not closed": "not_closed",
}

PAGE: Final = 500
CHAIN: Final = "checkpoints"
"""The stream whose head counts the checkpoints.

It has no records, and no turn or tenant has this name.
"""
_COLUMNS: Final = tuple(AUDIT_RECORDS.c[name] for name in Record.model_fields)

# Built once: building a statement takes longer than executing it.
_KEYS_ASKED: Final = 8
"""The number of keys in one query.

A list of fixed length needs no new SQL for each execution.
"""
_KNOWN: Final = select(AUDIT_RECORDS.c.key).where(
    AUDIT_RECORDS.c.stream == bindparam("of"),
    AUDIT_RECORDS.c.key.in_([bindparam(f"key{number}") for number in range(_KEYS_ASKED)]),
)
_ADD: Final = insert(AUDIT_RECORDS)
_END: Final = (
    select(AUDIT_RECORDS.c.seq, AUDIT_RECORDS.c.hash)
    .where(AUDIT_RECORDS.c.stream == bindparam("of"))
    .order_by(AUDIT_RECORDS.c.seq.desc())
    .limit(1)
)
_MOVE: Final = (
    update(AUDIT_HEADS)
    .where(AUDIT_HEADS.c.stream == bindparam("of"))
    .values(seq=bindparam("to"), hash=bindparam("last"))
)


TURNS_KEYS: Final = "turn-says/"
"""The key prefix of entries reported by a turn.

It keeps them from replacing entries of observers.
"""


class AuditLog:
    """Appends to and reads the log. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def append(self, entries: Iterable[AuditEntry]) -> int:
        """Append entries in order.

        Return the number of new ones. An entry with an existing key is skipped.

        They are stored when this returns, and none is if it raises.
        """
        new_entries = tuple(entries)
        if not new_entries:
            return 0
        return await self._store.run(entry_writer(new_entries))

    async def stream(self, stream: str) -> list[Record]:
        """Oldest first. Empty if there is no such stream."""
        query = select(*_COLUMNS).where(AUDIT_RECORDS.c.stream == bound_text(stream)).order_by(AUDIT_RECORDS.c.seq)
        return await self._store.read(lambda connection: [_record(row) for row in connection.execute(query)])

    async def of_kinds(self, kinds: Collection[str], streams: Collection[str]) -> list[Record]:
        """Oldest first within each stream."""
        query = select(*_COLUMNS).where(AUDIT_RECORDS.c.stream.in_(streams), AUDIT_RECORDS.c.kind.in_(kinds))
        query = query.order_by(AUDIT_RECORDS.c.stream, AUDIT_RECORDS.c.seq)
        return await self._store.read(lambda connection: [_record(row) for row in connection.execute(query)])

    async def find(self, key: str, streams: Collection[str]) -> dict[str, str]:
        """Return the time of the event, for each of `streams` that has one."""
        query = select(AUDIT_RECORDS.c.stream, AUDIT_RECORDS.c.at).where(
            AUDIT_RECORDS.c.stream.in_(streams), AUDIT_RECORDS.c.key == key
        )
        return await self._store.read(lambda connection: {row.stream: row.at for row in connection.execute(query)})

    async def find_streams(self, streams: Collection[str]) -> set[str]:
        query = select(AUDIT_HEADS.c.stream).where(AUDIT_HEADS.c.stream.in_(streams), AUDIT_HEADS.c.seq > 0)
        return await self._store.read(lambda connection: set(connection.scalars(query)))

    async def streams(self) -> list[str]:
        query = select(AUDIT_HEADS.c.stream).where(AUDIT_HEADS.c.seq > 0, AUDIT_HEADS.c.stream != CHAIN)
        return await self._store.read(lambda connection: list(connection.scalars(query.order_by(AUDIT_HEADS.c.stream))))

    async def records(self, *, tenant: str = "", since: str = "", kinds: Sequence[str] = ()) -> AsyncIterator[Record]:
        """By stream and number, in pages. `since` is formatted by `moment_text`."""
        wanted = select(*_COLUMNS).order_by(AUDIT_RECORDS.c.stream, AUDIT_RECORDS.c.seq).limit(PAGE)
        if tenant:
            wanted = wanted.where(AUDIT_RECORDS.c.tenant == tenant)
        if since:
            wanted = wanted.where(AUDIT_RECORDS.c.at >= since)
        if kinds:
            wanted = wanted.where(AUDIT_RECORDS.c.kind.in_(kinds))
        place = tuple_(AUDIT_RECORDS.c.stream, AUDIT_RECORDS.c.seq)
        page = wanted
        while rows := await self._store.read(partial(_page, query=page)):
            for record in rows:
                yield record
            # Each page is a separate transaction after the last one, so that an export does not block writers.
            page = wanted.where(place > (rows[-1].stream, rows[-1].seq))


def entry_writer(entries: Sequence[AuditEntry]) -> Callable[[Connection], int]:
    """The write runs in the caller's transaction and returns the number of new entries.

    It locks the heads of the streams in the order of their names until the transaction ends, so call it last.
    """
    by_stream: defaultdict[str, dict[str, Record]] = defaultdict(dict)
    event_facts: dict[tuple[str, str], str] = {}
    by_place: dict[tuple[str, str], AuditEntry] = {}
    for entry in entries:
        record = record_from_entry(entry)
        # Keep the first entry with a key, as the store does.
        by_stream[record.stream].setdefault(record.key, record)
        by_place.setdefault((record.stream, record.key), entry)
        if isinstance(entry, EventEntry) and entry.event_facts:
            event_facts.setdefault((record.stream, record.key), canonical_json(entry.event_facts).decode())

    def write(connection: Connection) -> int:
        added = _append(connection, by_stream)
        for stream, key in event_facts.keys() & set(added):
            insert_new(connection, EVENT_FACTS, {"stream": stream, "key": key, "body": event_facts[stream, key]})
        if added and AFTER_COMMIT in connection.info:
            connection.info[AFTER_COMMIT].append(partial(_tell, [by_place[place] for place in added]))
        return len(added)

    return write


def _tell(entries: Sequence[AuditEntry], counts: ProcessCounts) -> None:
    for entry in entries:
        counts.add(counts_from_entry(entry))
        _log_entry(entry)


class StreamEnd(NamedTuple):
    """The end of a locked stream."""

    seq: int
    hash: str
    now: int
    """The store's clock in milliseconds."""


def lock_heads(connection: Connection, streams: Iterable[str]) -> dict[str, StreamEnd]:
    """Create the heads if absent. Return their ends.

    One writing statement does it, so that a waiting process reads the changes of the lock's holder. If an attacker
    deleted the row, the next entry still follows the last record, because that must not stop a turn.
    """
    # Use a fixed order, so that two writers of the same streams do not wait for each other.
    values = [{"stream": stream, "seq": 0, "hash": FIRST, "covered": 0} for stream in sorted(streams)]
    ends = {}
    # The clock is read under the lock, so that times are in the order of numbers.
    for stream, seq, last, now in connection.execute(_lock(connection.dialect.name), _one_or_all(values)).all():
        ends[stream] = StreamEnd(seq, last, now)
        if not seq and (end := connection.execute(_END, {"of": stream}).first()) is not None:
            ends[stream] = StreamEnd(end.seq, end.hash, now)
            move_head(connection, stream, end.seq, end.hash)
    return ends


def lock_head(connection: Connection, stream: str) -> StreamEnd:
    """See `lock_heads`."""
    return lock_heads(connection, [stream])[stream]


@cache
def _lock(dialect: str) -> Any:
    held = insert_or_hold(AUDIT_HEADS, "seq", dialect)
    return held.returning(AUDIT_HEADS.c.stream, AUDIT_HEADS.c.seq, AUDIT_HEADS.c.hash, StoreClock())


def move_head(connection: Connection, stream: str, seq: int, last: str) -> None:
    connection.execute(_MOVE, {"of": stream, "to": seq, "last": last})


def _one_or_all(rows: list[dict[str, Any]]) -> list[dict[str, Any]] | dict[str, Any]:
    # SQLAlchemy runs one row quicker than a list of one.
    return rows[0] if len(rows) == 1 else rows


def _append(connection: Connection, wanted: Mapping[str, dict[str, Record]]) -> list[tuple[str, str]]:
    """Return stream and key of the new entries."""
    rows: list[dict[str, Any]] = []
    moves: list[dict[str, Any]] = []
    for stream, end in lock_heads(connection, wanted).items() if wanted else ():
        added = _place_new(connection, wanted[stream], stream, end)
        rows += [record.model_dump() for record in added]
        moves += [{"of": stream, "to": record.seq, "last": record.hash} for record in added[-1:]]
    if rows:
        connection.execute(_ADD, rows)
        connection.execute(_MOVE, _one_or_all(moves))
    return [(row["stream"], row["key"]) for row in rows]


def _place_new(connection: Connection, wanted: dict[str, Record], stream: str, end: StreamEnd) -> list[Record]:
    # A turn's report of something that the gateway has recorded itself is not new.
    keys = dict.fromkeys(each for key in wanted for each in (key, key.removeprefix(TURNS_KEYS)))
    # Read them under the lock: a retry that runs in parallel with its first attempt must see its entries.
    existing = _find_known(connection, stream, list(keys)) if end.seq else set()
    seq, last, placed = end.seq, end.hash, list[Record]()
    for key, record in wanted.items():
        if existing.isdisjoint((key, key.removeprefix(TURNS_KEYS))):
            seq += 1
            placed.append(place_record(record, seq, last, end.now))
            last = placed[-1].hash
    return placed


def _find_known(connection: Connection, stream: str, keys: list[str]) -> set[str]:
    existing: set[str] = set()
    for first in range(0, len(keys), _KEYS_ASKED):
        some = keys[first : first + _KEYS_ASKED]
        # Fill up with the last key, which does not change the result.
        some += some[-1:] * (_KEYS_ASKED - len(some))
        parameters = {f"key{number}": key for number, key in enumerate(some)}
        existing.update(connection.scalars(_KNOWN, {"of": stream, **parameters}))
    return existing


def _page(connection: Connection, query: Any) -> list[Record]:
    return [_record(row) for row in connection.execute(query)]


def _record(row: Row[Any]) -> Record:
    # Do not validate: the verifier finds changed rows, and they must not block reading others.
    return Record.model_construct(**row._mapping)


def counts_from_entry(entry: AuditEntry) -> Iterator[Count]:
    """A turn's own report counts only for its start and end: an activity or a gateway observed everything else."""
    if entry.kind == "turn":
        yield from _of_turn(entry.tenant, entry.data)
    elif entry.data.get("by") != "turn":
        yield from _of_call(entry.kind, entry.data)


def _of_turn(tenant: str, facts: Mapping[str, Any]) -> Iterator[Count]:
    if "session_event" in facts or "stop" in facts:
        return
    if "ended" in facts:
        # The turn reports its own state: limit the values, or anyone who can write to Temporal could exhaust the metric
        # series.
        state = str(facts["ended"])
        yield Count("signoff_turns_ended", (tenant, state if state in _ENDS else OTHER))
    else:
        yield Count("signoff_turns_started", (tenant,))


def _of_call(kind: str, facts: Mapping[str, Any]) -> Iterator[Count]:
    if kind in _ASKED and "approvers" in facts:
        if not facts.get("edited_by"):
            yield _gate_outcome("asked", "approval")
    elif kind == "auto":
        yield _gate_outcome("allowed", "approval")
    elif kind == "grant" and "act" not in facts:
        yield _gate_outcome("remembered", "approval")
    elif kind == "verdict":
        yield _gate_outcome(str(facts.get("code", "")), str(facts.get("gate", "")))
    elif kind in ("outcome", "in_doubt") and "code" in facts and "untaken" not in facts:
        tool = str(facts.get("tool", ""))
        yield Count("signoff_tool_calls", (tool, str(facts["code"])))
        yield Count("signoff_tool_call_duration_seconds", (tool,), float(facts.get("duration_ms", 0)) / 1000)
    elif kind == "attempt" and "verdict" in facts:
        outcome = facts.get("receipt") or facts.get("status", "")
        yield Count("signoff_decisions", (str(facts.get("channel", "")), str(facts["verdict"]), str(outcome)))
    elif kind == "delivery":
        yield from _of_delivery(facts)
    elif kind == "ending" and facts.get("state") == "timed_out":
        yield Count("signoff_request_deadlines", ("expired",))


def _of_delivery(facts: Mapping[str, Any]) -> Iterator[Count]:
    event = str(facts.get("event", ""))
    if event in _TIMED:
        yield Count("signoff_request_deadlines", (event,))
    elif event in _CARDS:
        yield Count("signoff_card_deliveries", (str(facts.get("channel", "")), _CARDS[event]))


def _gate_outcome(outcome: str, gate: str) -> Count:
    return Count("signoff_gate_outcomes", (outcome, gate))


def _log_entry(entry: AuditEntry) -> None:
    """Skips a turn's report of something that others observed."""
    if not _log.isEnabledFor(logging.INFO) or (entry.data.get("by") == "turn" and entry.kind != "turn"):
        return
    facts: dict[str, Any] = {**fields_of_turn(entry.stream), "kind": entry.kind}
    facts.setdefault("tenant", entry.tenant)
    facts |= {name: entry.data[name] for name in _LOGGED if name in entry.data}
    if "call" in entry.data:
        facts |= {"call": entry.data["call"], "request": entry.data.get("approval", "")}
    _log.info("%s", entry.kind, extra={FACTS: facts})
