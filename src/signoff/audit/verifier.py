"""Verifies that every written record exists, unchanged and in its place.

Needs no database and no gateway.
"""

import dataclasses
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from signoff.audit.checkpoints import Checkpoint, StreamHead
from signoff.audit.log import CHAIN
from signoff.audit.record import FIRST, Record
from signoff.audit.retention import first_number, replaces_stream
from signoff.keys.signatures import Verifier

Fault = Literal["changed", "missing", "reordered", "truncated", "unsigned", "unreadable"]


class Finding(NamedTuple):
    """The first fault."""

    fault: Fault
    stream: str
    seq: int
    """The record's number, or 0 if no single record is affected."""
    message: str


@dataclass(frozen=True)
class VerificationReport:
    """The result of a verification."""

    finding: Finding | None
    """The first fault, or `None`."""
    streams: int = 0
    records: int = 0
    checkpoints: int = 0
    covered_at: datetime | None = None
    """The time of the last checkpoint."""
    uncovered: int = 0
    """The number of records since the last checkpoint.

    The last of them could be missing without a trace.
    """
    headless: tuple[str, ...] = ()
    """Streams without a head in the store.

    Either they began after the heads were read, or their heads were removed. See `with_heads`.
    """


class _Claim(NamedTuple):
    """A statement of one record's hash, and its source."""

    hash: str
    by: str


@dataclass
class _Ledger:
    """The statements of checkpoints and heads about each stream, read before the first record."""

    claims: defaultdict[str, dict[int, _Claim]] = field(default_factory=lambda: defaultdict(dict))
    covered: dict[str, int] = field(default_factory=dict)
    number: int = 0
    previous: str = FIRST
    at: datetime | None = None
    hashes: dict[int, str] = field(default_factory=dict)

    def claim(self, head: StreamHead, by: str) -> None:
        # Keep the first statement: checkpoints are read before heads, which an attacker with write access can change.
        self.claims[head.stream].setdefault(head.seq, _Claim(head.hash, by))


async def verify(
    records: AsyncIterator[Record],
    checkpoints: AsyncIterator[Checkpoint],
    verifier: Verifier,
    *,
    heads: Iterable[StreamHead] | None = None,
    kept: Checkpoint | None = None,
) -> VerificationReport:
    """Check records (by stream and number) and the chain of checkpoints against each other.

    `heads` are the store's heads, read before the records, or `None` for an export. `kept` is a checkpoint stored
    elsewhere. Detects every change of records covered by a checkpoint. An attacker with write access to the database
    can cut off the end of a stream after the last checkpoint.
    """
    # Read checkpoints before records, so that each stream is checked against all statements, with one stream in memory
    # at a time.
    ledger = _Ledger()
    finding = await _read_checkpoints(ledger, checkpoints, verifier) or _check_kept(ledger, kept, verifier)
    heads = None if heads is None else tuple(heads)
    finding = finding or _read_heads(ledger, heads or ())
    headed = {head.stream for head in heads or ()}
    streams = count = uncovered = 0
    # A stream whose records were all removed has no record that could fail. It remains in this set.
    missing = set(ledger.claims)
    seen: set[str] = set()
    if finding is None:
        async for stream in _group(records):
            name = stream[0].stream
            if name in seen:
                words = f"the records of `{name}` do not stand together"
                finding = Finding("reordered", name, stream[0].seq, words)
                break
            seen.add(name)
            missing.discard(name)
            finding = _check_chain(stream, verifier) or _check_claims(stream, ledger.claims.get(name, {}))
            if finding is not None:
                break
            streams += 1
            count += len(stream)
            # Count only the records that a retired stream still has.
            uncovered += stream[-1].seq - max(ledger.covered.get(name, 0), stream[0].seq - 1)
    if finding is None and missing:
        name = min(missing)
        by = next(iter(ledger.claims[name].values())).by
        finding = Finding("truncated", name, 1, f"all records of `{name}` are missing, which {by} knows of")
    present = seen | ({CHAIN} if ledger.number else set())
    headless = () if heads is None else tuple(sorted(present - headed))
    return VerificationReport(finding, streams, count, ledger.number, ledger.at, uncovered, headless)


def with_heads(report: VerificationReport, heads: Iterable[StreamHead]) -> VerificationReport:
    """Compare the streams without a head to the store's present heads.

    A stream that began in between has a head, written together with its first record.
    """
    known = {head.stream for head in heads}
    lost = next((name for name in report.headless if name not in known), None)
    if lost is None or report.finding is not None:
        return report
    words = f"the store's own account of how far `{lost}` has come is missing: its last records could be, too"
    return dataclasses.replace(report, finding=Finding("missing", lost, 0, words))


def verify_stream(stream: list[Record], head: StreamHead | None, verifier: Verifier) -> Finding | None:
    """Check the chain, and its end by the store's head. `verifier` checks the record that replaces retired ones."""
    if not stream:
        return None
    claims = {} if head is None else {head.seq: _Claim(head.hash, "the head of its stream")}
    return _check_chain(stream, verifier) or _check_claims(stream, claims)


async def _read_checkpoints(
    ledger: _Ledger, checkpoints: AsyncIterator[Checkpoint], verifier: Verifier
) -> Finding | None:
    async for checkpoint in checkpoints:
        statement = checkpoint.statement
        expected = ledger.number + 1
        if statement.number != expected:
            fault: Fault = "missing" if statement.number > expected else "reordered"
            return Finding(fault, CHAIN, expected, f"checkpoint {expected} is not where it belongs")
        if statement.previous != ledger.previous:
            words = f"checkpoint {expected} does not follow the one before it: one of the two was exchanged"
            return Finding("changed", CHAIN, expected, words)
        if not checkpoint.holds(verifier):
            words = f"checkpoint {expected} is not signed by a known key `{checkpoint.key_id}`, or was changed"
            return Finding("unsigned", CHAIN, expected, words)
        for head in statement.heads:
            ledger.claim(head, f"checkpoint {expected}")
            ledger.covered[head.stream] = head.seq
        ledger.number, ledger.previous, ledger.at = expected, statement.hash, statement.made_at
        ledger.hashes[expected] = statement.hash
    return None


def _check_kept(ledger: _Ledger, kept: Checkpoint | None, verifier: Verifier) -> Finding | None:
    if kept is None:
        return None
    number = kept.statement.number
    if not kept.holds(verifier):
        return Finding("unsigned", CHAIN, number, f"the saved checkpoint {number} is not signed by a known key")
    if number not in ledger.hashes:
        words = f"the saved checkpoint {number} is missing: the audit log was cut off before it"
        return Finding("truncated", CHAIN, number, words)
    if ledger.hashes[number] != kept.statement.hash:
        return Finding("changed", CHAIN, number, f"checkpoint {number} differs from the saved one")
    return None


def _read_heads(ledger: _Ledger, heads: Iterable[StreamHead]) -> Finding | None:
    by_stream = {head.stream: head for head in heads}
    chain = by_stream.pop(CHAIN, None)
    if chain is not None and chain.seq > ledger.number:
        return Finding("truncated", CHAIN, chain.seq, f"checkpoint {chain.seq} was written and is missing")
    for head in by_stream.values():
        # At 0 it was locked, but nothing was written: there is no record.
        if head.seq:
            ledger.claim(head, "the head of its stream")
    return None


def _check_chain(stream: list[Record], verifier: Verifier) -> Finding | None:
    name, prev = stream[0].stream, FIRST
    # It must be signed: otherwise anyone who writes such a record could cut off everything before it.
    if (start := first_number(stream[0])) > 1:
        if not replaces_stream(stream[0], verifier):
            words = f"record {start} of `{name}` replaces the earlier ones without a signature by a known key"
            return Finding("unsigned", name, start, words)
        prev = stream[0].prev
    numbers = {record.seq for record in stream}
    for expected, record in enumerate(stream, start):
        if record.seq != expected:
            if record.seq > expected and expected not in numbers:
                return Finding("missing", name, expected, f"record {expected} of `{name}` is missing")
            words = f"record {record.seq} of `{name}` is at the place of record {expected}"
            return Finding("reordered", name, expected, words)
        # Check place, then content, then link: a broken link alone does not show which of the two was changed, or how.
        if record.compute_hash() != record.hash:
            return _find_displacement(stream, record)
        if record.prev != prev:
            words = f"record {expected} of `{name}` does not follow the one before it: one of the two was rewritten"
            return Finding("changed", name, expected, words)
        prev = record.hash
    return None


def _find_displacement(stream: list[Record], record: Record) -> Finding:
    name, seq, start = record.stream, record.seq, first_number(stream[0])
    # Search beyond the end: if records were removed, the last ones have higher numbers than the stream's length.
    places = range(start, start + len(stream) + 100)
    true = next((other for other in places if record.compute_hash(other) == record.hash), None)
    if true is None:
        return Finding("changed", name, seq, f"record {seq} of `{name}` was changed after it was written")
    if any(each.compute_hash(seq) == each.hash for each in stream):
        words = f"record {true} of `{name}` was moved to the place of record {seq}"
        return Finding("reordered", name, seq, words)
    words = f"record {seq} of `{name}` is missing: its place holds record {true}"
    return Finding("missing", name, seq, words)


def _check_claims(stream: list[Record], claims: dict[int, _Claim]) -> Finding | None:
    name, first, last = stream[0].stream, stream[0].seq, stream[-1].seq
    hashes = {first - 1: stream[0].prev} | {record.seq: record.hash for record in stream}
    for seq, claim in sorted(claims.items()):
        if seq > last:
            words = f"`{name}` ends with record {last}, but {claim.by} knows of record {seq}: its end was cut off"
            return Finding("truncated", name, last + 1, words)
        # Records retired before the last retired record have no hash here any longer. That record binds them.
        if hashes.get(seq, claim.hash) != claim.hash:
            words = (
                f"record {seq} of `{name}` differs from the record that {claim.by} knows: it, or an earlier one, was "
                "rewritten"
            )
            return Finding("changed", name, seq, words)
    return None


async def _group(records: AsyncIterator[Record]) -> AsyncIterator[list[Record]]:
    stream: list[Record] = []
    async for record in records:
        if stream and record.stream != stream[0].stream:
            yield stream
            stream = []
        stream.append(record)
    if stream:
        yield stream
