"""Divides a turn into segments, from its start or an answer until it waits or ends, and names the span of each. Pure.

No process knows a turn from its start to its end, and no span may stay open for days. So the ids of a segment's span
are computed from the turn and from what began the segment: whichever worker runs a part of it makes that part a child
of the same span, and whichever sees it end writes the span itself.
"""

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8


class TurnWait(NamedTuple):
    """A question of a turn, and when it stopped waiting for people."""

    request: str
    """The approval id."""
    revision: int
    """Which time people were asked."""
    asked_at: datetime
    """When they were."""
    over_at: datetime | None
    """When somebody settled it, or its time was over; None while it waits."""


class SpanKey(NamedTuple):
    """The ids of one span."""

    trace: int
    """The trace's id."""
    span: int
    """The span's id."""


class TurnSegment(NamedTuple):
    """A part of a turn in which it does not wait."""

    key: SpanKey
    """The ids of its span, which is the root of a trace of its own."""
    cause: TurnWait | None
    """The question whose end began it; None for the first segment."""
    before: SpanKey | None
    """The span of the segment in which that question was asked."""


def segment_at(workflow_id: str, nonce: str, waits: Iterable[TurnWait], moment: datetime) -> TurnSegment:
    """Returns the segment of a turn that a moment is in: the one that began last."""
    known = tuple(waits)
    cause = _cause(known, moment)
    if cause is None:
        return TurnSegment(_key(workflow_id, nonce, None), None, None)
    # Not its own end, where it was settled in the millisecond in which it was asked.
    earlier = [each for each in known if each != cause]
    return TurnSegment(
        _key(workflow_id, nonce, cause), cause, _key(workflow_id, nonce, _cause(earlier, cause.asked_at))
    )


def segment_after(workflow_id: str, nonce: str, request: str, revision: int) -> SpanKey:
    """Returns the span of the segment that the end of a question begins."""
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
    # An id of zero means none; of so many bits it is none's by chance.
    return SpanKey(int.from_bytes(trace) or 1, int.from_bytes(span) or 1)
