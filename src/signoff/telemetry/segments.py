"""Divides a turn into segments, from its start or an answer to its next wait or end, with a span for each. Pure.

No process sees a whole turn, and no span may stay open for days. Therefore a segment's span ids are computed from the
turn and the segment's cause. Each worker's part is a child of that span, and the worker that sees the end writes the
span.
"""

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8


class TurnWait(NamedTuple):
    """A question of a turn, and the end of its wait."""

    request: str
    revision: int
    asked_at: datetime
    over_at: datetime | None
    """`None` while it waits."""


class SpanKey(NamedTuple):
    """The ids of one span."""

    trace: int
    span: int


class TurnSegment(NamedTuple):
    """A part of a turn without waits."""

    key: SpanKey
    """Its span is the root of a separate trace."""
    cause: TurnWait | None
    """`None` for the first segment."""
    before: SpanKey | None
    """The span of the segment that asked this question."""


def segment_at(workflow_id: str, nonce: str, waits: Iterable[TurnWait], moment: datetime) -> TurnSegment:
    """Return the segment that began last before a moment."""
    known = tuple(waits)
    cause = _cause(known, moment)
    if cause is None:
        return TurnSegment(_key(workflow_id, nonce, None), None, None)
    # Exclude its own end, if it was settled in the same millisecond as asked.
    earlier = [each for each in known if each != cause]
    return TurnSegment(
        _key(workflow_id, nonce, cause), cause, _key(workflow_id, nonce, _cause(earlier, cause.asked_at))
    )


def segment_after(workflow_id: str, nonce: str, request: str, revision: int) -> SpanKey:
    return _hash(workflow_id, nonce, request, str(revision))


def _cause(waits: Iterable[TurnWait], moment: datetime) -> TurnWait | None:
    over = [(each.over_at, each.request, each.revision, each) for each in waits if each.over_at is not None]
    before = [each for each in over if each[0] <= moment]
    return max(before)[-1] if before else None


def _key(workflow_id: str, nonce: str, cause: TurnWait | None) -> SpanKey:
    if cause is None:
        return _hash(workflow_id, nonce)
    return segment_after(workflow_id, nonce, cause.request, cause.revision)


def _hash(*parts: str) -> SpanKey:
    digest = hashlib.sha256("\0".join(("signoff-span", *parts)).encode("utf-8", "surrogatepass")).digest()
    trace, span = digest[:_TRACE_BYTES], digest[_TRACE_BYTES : _TRACE_BYTES + _SPAN_BYTES]
    # An id of zero means none, and is impossible by chance with so many bits.
    return SpanKey(int.from_bytes(trace) or 1, int.from_bytes(span) or 1)
