"""One stream read out: found by a name, its records in words, and whether they are as they were written."""

from collections.abc import Iterable

from signoff.audit.checkpoints import Checkpoints
from signoff.audit.log import AuditLog
from signoff.audit.record import Record
from signoff.audit.timeline import timeline
from signoff.audit.verifier import Fault, verify_stream
from signoff.contracts.errors import NotFound, Refused
from signoff.contracts.frozen_model import Shape
from signoff.contracts.ids import TurnKey, is_id, parse_workflow_id
from signoff.contracts.names import DEFAULT_TENANT
from signoff.formats.nearest_name import did_you_mean, shown
from signoff.keys.signatures import Verifier
from signoff.store.store import Store


class Line(Shape):
    """One record in words. `at` is ISO 8601 in UTC, to the second."""

    at: str
    who: str
    what: str


class Flaw(Shape):
    """The first thing that is not as it was written. `seq` is 0 where it concerns no one record."""

    fault: Fault
    stream: str
    seq: int
    message: str


class Telling(Shape):
    """A stream in words, its records, oldest first, and what is wrong with them, if something is."""

    stream: str
    timeline: tuple[Line, ...]
    records: tuple[Record, ...]
    finding: Flaw | None = None


async def tell(store: Store, stream: str, verifier: Verifier) -> Telling:
    """Read a stream out. One that is not there has no records. Raises `StoreUnavailable`."""
    records = await AuditLog(store).stream(stream)
    heads = {head.stream: head for head in await Checkpoints(store).heads()}
    finding = verify_stream(records, heads.get(stream), verifier)
    return Telling(
        stream=stream,
        timeline=tuple(Line(**moment._asdict()) for moment in timeline(records)),
        records=tuple(records),
        finding=None if finding is None else Flaw(**finding._asdict()),
    )


def find_stream(known: Iterable[str], text: str) -> str:
    """The stream that a workflow id, `<tenant>.<session>.<turn>`, a turn's id or its beginning names.

    Raises `NotFound` that offers the nearest ones, `Refused` when a beginning fits several.
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
        raise Refused(f"{shown(text)} fits several turns, name one of them whole: {', '.join(sorted(named)[:5])}")
    if not named:
        near = did_you_mean(text, [*turns.values(), f"admin/{DEFAULT_TENANT}"])
        raise NotFound(f"nothing is recorded of {shown(text)}{near}")
    return named[0]
