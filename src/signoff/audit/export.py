"""Writes and reads the record as JSON lines, to be verified and kept elsewhere: a header, the checkpoints, the records,
an end.
"""

import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from signoff.audit.checkpoints import Checkpoint, Checkpoints
from signoff.audit.log import AuditLog
from signoff.audit.record import Record
from signoff.contracts.canonical_json import NotCanonical, canonical_json
from signoff.contracts.clock import Clock, system_clock
from signoff.contracts.errors import Refused
from signoff.store.store import Store

FORMAT: Final = 1


async def export_lines(
    store: Store, *, tenant: str = "", stream: str = "", clock: Clock = system_clock
) -> AsyncIterator[str]:
    """Yields the lines of an export, each one JSON object, without line ends.

    An export of the whole record has its checkpoints with it. Those name the streams of every tenant, so that an export
    of one tenant or stream goes without; its chains are verified, but not whether their ends were cut off.
    """
    whole = not (tenant or stream)
    yield _line({"type": "export", "v": FORMAT, "at": clock().isoformat(), "whole": whole})
    if whole:
        # Before the records: what they cover is then surely among what is read after them.
        async for checkpoint in Checkpoints(store).all():
            yield _line({"type": "checkpoint", **checkpoint.model_dump(mode="json")})
    count = 0
    async for record in _records(AuditLog(store), tenant, stream):
        count += 1
        yield _line({"type": "record", **record.model_dump(exclude={"data"}), "data": _data(record)})
    yield _line({"type": "end", "records": count})


class Export:
    """Reads an export. Raises `Refused`, naming the line, for a file that is not one.

    `whole` tells whether checkpoints came with it; `complete` whether its last line is the end that was written.
    """

    def __init__(self, lines: Iterable[str], name: str) -> None:
        self.checkpoints: list[Checkpoint] = []
        self.records: list[Record] = []
        self.whole = False
        self.complete = False
        self.lines = 0
        for number, line in enumerate(lines, 1):
            if line.strip():
                self.lines += 1
                self._read(line, f"{name}:{number}")
        if not self.lines:
            raise Refused(f"`{name}` is empty")

    def _read(self, line: str, where: str) -> None:
        try:
            found: Any = json.loads(line)
            kind = found.pop("type")
            if kind == "export":
                self.whole = found["whole"] is True
            elif kind == "checkpoint":
                self.checkpoints.append(Checkpoint.model_validate(found))
            elif kind == "record":
                # In the file `data` is plain JSON for other tools; its hash is over the canonical text.
                data = canonical_json(found.pop("data")).decode()
                self.records.append(Record.model_validate({**found, "data": data}))
            elif kind == "end":
                # A chain does not tell that the streams after it were left out: this count does.
                self.complete = found["records"] == len(self.records)
            else:
                raise ValueError(kind)
        except (ValueError, KeyError, TypeError, AttributeError, NotCanonical, ValidationError, RecursionError):
            raise Refused(f"{where} is not a line of an audit export") from None


def read_export(path: Path) -> Export:
    """Reads the export in a file. Raises `Refused`, `OSError`."""
    # A damaged byte then shows as a record that was changed, with its number.
    with path.open(encoding="utf-8", errors="replace") as lines:
        return Export(lines, str(path))


def write_checkpoint(checkpoint: Checkpoint) -> str:
    """Writes a checkpoint on one line, to be kept elsewhere."""
    return _line({"type": "checkpoint", **checkpoint.model_dump(mode="json")})


async def iterate(items: Iterable[Any]) -> AsyncIterator[Any]:
    """Iterates over `items` asynchronously."""
    for item in items:
        yield item


async def _records(log: AuditLog, tenant: str, stream: str) -> AsyncIterator[Record]:
    if stream:
        for record in await log.stream(stream):
            yield record
        return
    async for record in log.records(tenant=tenant):
        yield record


def _data(record: Record) -> Any:
    """Returns the facts of a record, for other tools; its text where that is none that can be read any more.

    Whoever verifies the export finds such a record changed. Without it, one entry would keep all others from leaving.
    """
    try:
        return record.facts
    except (Refused, RecursionError):
        return record.data


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
