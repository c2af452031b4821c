"""Reports one stream: finds it by name, shows its records as text, and verifies them."""

from collections.abc import Iterable
from typing import Final

from signoff.audit.checkpoints import Checkpoints
from signoff.audit.log import AuditLog
from signoff.audit.record import Record
from signoff.audit.timeline import timeline
from signoff.audit.verifier import Fault, verify_stream
from signoff.contracts.errors import NotFound, Refused
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.ids import TurnKey, is_id, parse_workflow_id
from signoff.contracts.names import DEFAULT_TENANT
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.keys.signatures import Verifier
from signoff.store.store import Store

_TRIES: Final = 20


class ReportLine(FrozenModel):
    """One record as text."""

    at: str
    """The time of the event: ISO 8601 in UTC, to the second."""
    who: str
    """The person who acted."""
    what: str


class ReportFinding(FrozenModel):
    """The first fault."""

    fault: Fault
    stream: str
    seq: int
    """The record's number, or 0 if no single record is affected."""
    message: str
    """A description of the fault."""


class StreamReport(FrozenModel):
    """A stream as text."""

    stream: str
    timeline: tuple[ReportLine, ...]
    """Its records as text, oldest first."""
    records: tuple[Record, ...]
    """Its records, oldest first."""
    finding: ReportFinding | None = None
    """The first fault, if any."""


async def report_stream(store: Store, stream: str, verifier: Verifier) -> StreamReport:
    """A missing stream has no records. Raises `StoreUnavailable`."""
    log, points = AuditLog(store), Checkpoints(store)
    head = await points.head(stream)
    for _ in range(_TRIES):
        records, before = await log.stream(stream), head
        head = await points.head(stream)
        # A record that was added between the two would look like a removed one.
        if head == before:
            break
    finding = verify_stream(records, head, verifier)
    return StreamReport(
        stream=stream,
        timeline=tuple(ReportLine(**moment._asdict()) for moment in timeline(records)),
        records=tuple(records),
        finding=None if finding is None else ReportFinding(**finding._asdict()),
    )


def find_stream(known: Iterable[str], text: str) -> str:
    """Find a stream by its workflow id, its `<tenant>.<session>.<turn>`, or a turn's id or its start.

    Raises `NotFound` with the nearest names, and `Refused` if a start matches several.
    """
    names = set(known)
    text = text.strip()
    parts = text.split(".")
    if len(parts) == 3 and all(map(is_id, parts)):
        text = TurnKey(*parts).workflow_id
    if text in names:
        return text
    turns = {stream: key.turn for stream in names if (key := parse_workflow_id(stream)) is not None}
    named = [stream for stream, turn in turns.items() if turn == text]
    named = named or [stream for stream, turn in turns.items() if text and turn.startswith(text)]
    if len(named) > 1:
        raise Refused(f"{quote_name(text)} fits several turns, name one of them whole: {', '.join(sorted(named)[:5])}")
    if not named:
        near = did_you_mean(text, [*turns.values(), f"admin/{DEFAULT_TENANT}"])
        raise NotFound(f"nothing is recorded of {quote_name(text)}{near}")
    return named[0]
