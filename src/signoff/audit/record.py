"""Defines a record and its hash: an entry as it was written, bound to its place and to the record before it."""

import json
from datetime import UTC, datetime
from typing import Any, Final

from signoff.contracts.audit import AuditEntry
from signoff.contracts.canonical_json import NotCanonical, canonical_json, sha256_hex
from signoff.contracts.errors import Refused
from signoff.contracts.frozen_model import FrozenModel
from signoff.formats.replace import replace

FIRST: Final = "0" * 64
"""What the first record of a stream has in the place of the hash before it."""
DATA_BYTES: Final = 32 * 1024
TEXT_CHARS: Final = 200
"""Longer streams, keys and subjects are cut, their sha-256 behind them."""
TOO_LONG: Final = "too_long"
"""The fact that a record has in the place of all others, where these are longer than `DATA_BYTES`."""
_VERSION: Final = 1


class Record(FrozenModel):
    """One record of a stream."""

    stream: str
    """The stream's name."""
    seq: int
    """The record's number in its stream, from 1."""
    key: str
    """The entry's key, unique in its stream."""
    kind: str
    """The entry's kind."""
    at: str
    """When it happened: ISO 8601 in UTC."""
    tenant: str
    """The tenant, or ""."""
    subject: str
    """The person or thing that it is about."""
    data: str
    """The entry's facts, canonical JSON as text."""
    prev: str
    """The hash of the record before."""
    written_at: int
    """When it was written: milliseconds since 1970 by the store's clock."""
    hash: str = ""
    """The sha-256 over the RFC 8785 form of all other fields and a version."""

    def compute_hash(self, seq: int | None = None) -> str:
        """Computes the hash this record should have, in its own place or as number `seq`; "" when nothing can be
        hashed.
        """
        # All fields but the hash itself, not a list of names: none can be forgotten.
        fields = {name: value for name, value in self if name != "hash"}
        try:
            return sha256_hex({"v": _VERSION, **fields, "seq": self.seq if seq is None else seq})
        except NotCanonical:
            return ""

    @property
    def facts(self) -> dict[str, Any]:
        """Parses `data`. Raises `Refused` when somebody changed it."""
        try:
            found: Any = json.loads(self.data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Refused(f"record {self.seq} of `{self.stream}` was changed: see `signoff audit verify`")
        return found


def record_from_entry(entry: AuditEntry) -> Record:
    """Converts `entry` to a record without a place: bounded, and of JSON whatever its sender put into it."""
    return Record(
        stream=bound_text(entry.stream),
        seq=0,
        key=bound_text(entry.key),
        kind=entry.kind,
        at=moment_text(entry.at),
        tenant=bound_text(entry.tenant, 64),
        subject=bound_text(entry.subject),
        data=_data_text(entry.data),
        prev="",
        written_at=0,
    )


def place_record(record: Record, seq: int, prev: str, written_at: int) -> Record:
    """Returns `record` in its place, with its hash."""
    there = replace(record, seq=seq, prev=prev, written_at=written_at)
    return replace(there, hash=there.compute_hash())


def moment_text(at: datetime) -> str:
    """Writes `at` in the form that records hold; such texts sort like the times."""
    # In UTC and of one width: `since` is compared with them as text, in the database.
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def bound_text(text: str, limit: int = TEXT_CHARS) -> str:
    """Removes from `text` what a database cannot hold; cuts a longer one to its beginning and its sha-256."""
    # PostgreSQL takes no NUL in a text, and half a surrogate pair has no UTF-8.
    plain = text.encode(errors="replace").decode().replace("\0", "�")
    if len(plain) <= limit:
        return plain
    digest = sha256_hex(plain)
    return digest[:limit] if limit <= len(digest) else f"{plain[: limit - len(digest) - 1]}~{digest}"


def _data_text(data: dict[str, Any]) -> str:
    try:
        body = canonical_json(data)
    except NotCanonical:
        # A record is written whatever a sender put into a message: what JSON cannot hold is told in words.
        body = canonical_json(_writable(data))
    if len(body) > DATA_BYTES:
        # The hash still binds what was said, for whoever kept it elsewhere.
        body = canonical_json({TOO_LONG: len(body), "sha256": sha256_hex(body.decode())})
    return body.decode()


def _writable(value: Any, depth: int = 0) -> Any:
    # Whoever sends a message chooses its depth; the record is written all the same.
    if depth > 8:
        return "..."
    if isinstance(value, dict):
        return {str(_writable(str(key))): _writable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(item, depth + 1) for item in value]
    if value is None or isinstance(value, bool):
        return value
    try:
        canonical_json(value)
    except NotCanonical:
        return str(value).encode(errors="replace").decode()
    return value
