"""Appends entries to the audit log in a store: each once, after the last of its stream. Nothing is ever changed."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from functools import cache, partial
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, insert, select, tuple_, update

from signoff.audit.record import FIRST, Record, bound_text, place_record, record_from_entry
from signoff.audit.record_counts import counts_from_entry
from signoff.audit.record_log import log_entry
from signoff.contracts.audit import AuditEntry, EventEntry
from signoff.contracts.canonical_json import canonical_json
from signoff.store.claim_conditions import insert_new, insert_or_hold
from signoff.store.store import AFTER_COMMIT, Store
from signoff.store.tables import AUDIT_HEADS, AUDIT_RECORDS, EVENT_FACTS, StoreClock
from signoff.telemetry.counts import ProcessCounts

PAGE: Final = 500
CHAIN: Final = "checkpoints"
"""The stream whose head counts the checkpoints; it has no records, and no turn or tenant is called so."""
_COLUMNS: Final = tuple(AUDIT_RECORDS.c[name] for name in Record.model_fields)

# Built once: building a statement takes longer than executing it.
_KEYS_ASKED: Final = 8
"""Keys looked for at once: a list of a fixed length is not rewritten at each execution."""
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
"""How the keys of entries begin that are a turn's word, so that they take no place of what others saw."""


class AuditLog:
    """Appends to and reads the log in `store`. All methods raise `StoreUnavailable` when the database fails."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def append(self, entries: Iterable[AuditEntry]) -> int:
        """Writes entries in their order; returns how many were new. An entry whose key its stream has adds nothing.

        When this returns they are kept; when it raises, none is.
        """
        given = tuple(entries)
        if not given:
            return 0
        return await self._store.run(entry_writer(given))

    async def stream(self, stream: str) -> list[Record]:
        """Returns the records of one stream, oldest first; none where there is no such stream."""
        query = select(*_COLUMNS).where(AUDIT_RECORDS.c.stream == bound_text(stream)).order_by(AUDIT_RECORDS.c.seq)
        return await self._store.read(lambda connection: [_record(row) for row in connection.execute(query)])

    async def of_kind(self, kind: str, streams: Collection[str]) -> list[Record]:
        """Returns the records of one kind in `streams`, the oldest of each stream first."""
        query = select(*_COLUMNS).where(AUDIT_RECORDS.c.stream.in_(streams), AUDIT_RECORDS.c.kind == kind)
        query = query.order_by(AUDIT_RECORDS.c.stream, AUDIT_RECORDS.c.seq)
        return await self._store.read(lambda connection: [_record(row) for row in connection.execute(query)])

    async def find(self, key: str, streams: Collection[str]) -> dict[str, str]:
        """Returns when what an entry of this key tells happened, by stream, for those of `streams` that have one."""
        query = select(AUDIT_RECORDS.c.stream, AUDIT_RECORDS.c.at).where(
            AUDIT_RECORDS.c.stream.in_(streams), AUDIT_RECORDS.c.key == key
        )
        return await self._store.read(lambda connection: {row.stream: row.at for row in connection.execute(query)})

    async def find_streams(self, streams: Collection[str]) -> set[str]:
        """Returns those of `streams` that have a record."""
        query = select(AUDIT_HEADS.c.stream).where(AUDIT_HEADS.c.stream.in_(streams), AUDIT_HEADS.c.seq > 0)
        return await self._store.read(lambda connection: set(connection.scalars(query)))

    async def streams(self) -> list[str]:
        """Returns the names of all streams."""
        query = select(AUDIT_HEADS.c.stream).where(AUDIT_HEADS.c.seq > 0, AUDIT_HEADS.c.stream != CHAIN)
        return await self._store.read(lambda connection: list(connection.scalars(query.order_by(AUDIT_HEADS.c.stream))))

    async def records(self, *, tenant: str = "", since: str = "", kinds: Sequence[str] = ()) -> AsyncIterator[Record]:
        """Yields all records by stream and number, in pages; `since` is a text of `moment_text`."""
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
            # Each page is a transaction of its own and begins behind the last: an export holds up nobody who writes.
            page = wanted.where(place > (rows[-1].stream, rows[-1].seq))


def entry_writer(entries: Sequence[AuditEntry]) -> Callable[[Connection], int]:
    """Returns a write of entries for the caller's transaction: they are kept together with what it writes, or not at
    all.

    The write returns how many were new. It locks the streams' heads in the order of their names, and keeps them locked
    until the transaction ends: call it last.
    """
    by_stream: defaultdict[str, dict[str, Record]] = defaultdict(dict)
    event_facts: dict[tuple[str, str], str] = {}
    by_place: dict[tuple[str, str], AuditEntry] = {}
    for entry in entries:
        record = record_from_entry(entry)
        # The first of a key stands, as it does in the store.
        by_stream[record.stream].setdefault(record.key, record)
        by_place.setdefault((record.stream, record.key), entry)
        if isinstance(entry, EventEntry) and entry.event_facts:
            event_facts.setdefault((record.stream, record.key), canonical_json(entry.event_facts).decode())

    def write(connection: Connection) -> int:
        # In one order, so that two who write to the same streams do not wait for each other.
        added = [place for stream in sorted(by_stream) for place in _append(connection, stream, by_stream[stream])]
        for stream, key in event_facts.keys() & set(added):
            insert_new(connection, EVENT_FACTS, {"stream": stream, "key": key, "body": event_facts[stream, key]})
        if added and AFTER_COMMIT in connection.info:
            connection.info[AFTER_COMMIT].append(partial(_tell, [by_place[place] for place in added]))
        return len(added)

    return write


def _tell(entries: Sequence[AuditEntry], counts: ProcessCounts) -> None:
    """Counts and logs entries that were written."""
    for entry in entries:
        counts.add(counts_from_entry(entry))
        log_entry(entry)


def lock_head(connection: Connection, stream: str) -> tuple[int, str, int]:
    """Locks the head of `stream`, made if absent; returns its last number, its last hash, and the store's clock in ms.

    One statement that writes, so that whoever waited for the lock reads what its holder left. Where somebody took the
    row away, the next entry still goes after the last record: a turn must not stand still for that.
    """
    values = {"stream": stream, "seq": 0, "hash": FIRST, "covered": 0}
    # The clock is read once the lock is held: the times stand in the order of the numbers.
    seq, last, now = connection.execute(_lock(connection.dialect.name), values).one()
    if not seq and (end := connection.execute(_END, {"of": stream}).first()) is not None:
        seq, last = end
        move_head(connection, stream, seq, last)
    return seq, last, now


@cache
def _lock(dialect: str) -> Any:
    held = insert_or_hold(AUDIT_HEADS, "seq", dialect)
    return held.returning(AUDIT_HEADS.c.seq, AUDIT_HEADS.c.hash, StoreClock())


def move_head(connection: Connection, stream: str, seq: int, last: str) -> None:
    """Sets the head of a locked stream to its new last record."""
    connection.execute(_MOVE, {"of": stream, "to": seq, "last": last})


def _append(connection: Connection, stream: str, wanted: dict[str, Record]) -> list[tuple[str, str]]:
    """Appends to one stream; returns stream and key of what was new."""
    seq, last, now = lock_head(connection, stream)
    # What a turn tells of something that the gateway has written itself says nothing new.
    keys = dict.fromkeys(each for key in wanted for each in (key, key.removeprefix(TURNS_KEYS)))
    # Under the lock: a retry that ran beside its first try finds what that one wrote.
    known = _find_known(connection, stream, list(keys)) if seq else set()
    rows = []
    for key, record in wanted.items():
        if known.isdisjoint((key, key.removeprefix(TURNS_KEYS))):
            seq += 1
            there = place_record(record, seq, last, now)
            last = there.hash
            rows.append(there.model_dump())
    if rows:
        connection.execute(_ADD, rows)
        move_head(connection, stream, seq, last)
    return [(stream, row["key"]) for row in rows]


def _find_known(connection: Connection, stream: str, keys: list[str]) -> set[str]:
    found: set[str] = set()
    for first in range(0, len(keys), _KEYS_ASKED):
        some = keys[first : first + _KEYS_ASKED]
        # Filled up with the last key, which changes nothing in a search.
        some += some[-1:] * (_KEYS_ASKED - len(some))
        asked = {f"key{number}": key for number, key in enumerate(some)}
        found.update(connection.scalars(_KNOWN, {"of": stream, **asked}))
    return found


def _page(connection: Connection, query: Any) -> list[Record]:
    return [_record(row) for row in connection.execute(query)]


def _record(row: Row[Any]) -> Record:
    # Unchecked: a row that somebody changed is for the verifier to find, and must not keep the others from being read.
    return Record.model_construct(**row._mapping)
