"""Defines a record and its hash: a stored entry, bound to its place and predecessor."""

import json
from datetime import UTC, datetime
from typing import Any, Final

from signoff.contracts.audit import AuditEntry
from signoff.contracts.canonical_json import NotCanonical, canonical_json, sha256_hex
from signoff.contracts.errors import Refused
from signoff.contracts.frozen_model import FrozenModel
from signoff.formats.replace import replace

FIRST: Final = "0" * 64
"""The previous hash of the first record of a stream."""
DATA_BYTES: Final = 32 * 1024
TEXT_CHARS: Final = 200
"""Longer streams, keys and subjects are truncated, followed by their SHA-256."""
TOO_LONG: Final = "too_long"
"""The fact that replaces all others if they are longer than `DATA_BYTES`."""
_VERSION: Final = 1


class Record(FrozenModel):
    """One record of a stream."""

    stream: str
    seq: int
    """The record's number in its stream, from 1."""
    key: str
    """The entry's key, unique in its stream."""
    kind: str
    at: str
    """The time of the event: ISO 8601 in UTC."""
    tenant: str
    """The tenant, or ""."""
    subject: str
    """The person or thing that acted."""
    data: str
    """The entry's facts as canonical JSON."""
    prev: str
    """The hash of the previous record."""
    written_at: int
    """The time of writing: milliseconds since 1970 by the store's clock."""
    hash: str = ""
    """The SHA-256 of the RFC 8785 encoding of all other fields and a version."""

    def compute_hash(self, seq: int | None = None) -> str:
        """Return the correct hash in its place or as number `seq`, or "" if it cannot be computed."""
        # Use all fields except the hash instead of a list of names, so that none can be forgotten.
        fields = {name: value for name, value in self if name != "hash"}
        try:
            return sha256_hex({"v": _VERSION, **fields, "seq": self.seq if seq is None else seq})
        except NotCanonical:
            return ""

    @property
    def facts(self) -> dict[str, Any]:
        """Raises `Refused` if `data` was changed."""
        try:
            parsed: Any = json.loads(self.data)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise Refused(f"record {self.seq} of `{self.stream}` was changed: see `signoff audit verify`")
        return parsed


def record_from_entry(entry: AuditEntry) -> Record:
    """The record has no place. Bounds its size and makes it valid JSON."""
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
    placed = replace(record, seq=seq, prev=prev, written_at=written_at)
    return replace(placed, hash=placed.compute_hash())


def moment_text(at: datetime) -> str:
    """Such texts sort like the times."""
    # Use UTC and a fixed width: the database compares `since` with them as text.
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def bound_text(text: str, limit: int = TEXT_CHARS) -> str:
    """Replace characters in `text` that a database cannot store.

    Truncate long text and append its SHA-256.
    """
    # PostgreSQL accepts no NUL in a text, and half a surrogate pair has no UTF-8.
    plain = text.encode(errors="replace").decode().replace("\0", "�")
    if len(plain) <= limit:
        return plain
    digest = sha256_hex(plain)
    return digest[:limit] if limit <= len(digest) else f"{plain[: limit - len(digest) - 1]}~{digest}"


def _data_text(data: dict[str, Any]) -> str:
    try:
        body = canonical_json(data)
    except NotCanonical:
        # Always write the record: convert values in a message that JSON cannot represent to text.
        body = canonical_json(_writable(data))
    if len(body) > DATA_BYTES:
        # The hash still binds the content for anyone who stored it elsewhere.
        body = canonical_json({TOO_LONG: len(body), "sha256": sha256_hex(body.decode())})
    return body.decode()


def _writable(value: Any, depth: int = 0) -> Any:
    # The sender chooses the depth. The record must be written anyway.
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
