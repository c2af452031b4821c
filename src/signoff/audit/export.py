"""Writes and reads the audit log as JSON lines, for verification and storage elsewhere.

The order is a header, the checkpoints, the records and an end.
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
    """Only an export of the whole log contains its checkpoints, because they name the streams of all tenants.

    Other exports verify the chains, but not whether their ends were cut off.
    """
    whole = not (tenant or stream)
    yield _line({"type": "export", "v": FORMAT, "at": clock().isoformat(), "whole": whole})
    if whole:
        # Read them before the records, so that the records read afterwards include all covered ones.
        async for checkpoint in Checkpoints(store).all():
            yield _line({"type": "checkpoint", **checkpoint.model_dump(mode="json")})
    count = 0
    async for record in _records(AuditLog(store), tenant, stream):
        count += 1
        yield _line({"type": "record", **record.model_dump(exclude={"data"}), "data": _data(record)})
    yield _line({"type": "end", "records": count})


class Export:
    """Reads an export.

    Raises `Refused`, naming the line, for any other file. `whole` means that it contains checkpoints, `complete` that
    its last line is the original end.
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
            content: Any = json.loads(line)
            kind = content.pop("type")
            if kind == "export":
                self.whole = content["whole"] is True
            elif kind == "checkpoint":
                self.checkpoints.append(Checkpoint.model_validate(content))
            elif kind == "record":
                # In the file, `data` is plain JSON for other tools. Its hash covers the canonical text.
                data = canonical_json(content.pop("data")).decode()
                self.records.append(Record.model_validate({**content, "data": data}))
            elif kind == "end":
                # Unlike a chain, this count shows whether later streams are missing.
                self.complete = content["records"] == len(self.records)
            else:
                raise ValueError(kind)
        except (ValueError, KeyError, TypeError, AttributeError, NotCanonical, ValidationError, RecursionError):
            raise Refused(f"{where} is not a line of an audit export") from None


def read_export(path: Path) -> Export:
    """Raises `Refused` and `OSError`."""
    # A damaged byte then shows as a changed record, with its number.
    with path.open(encoding="utf-8", errors="replace") as lines:
        return Export(lines, str(path))


def write_checkpoint(checkpoint: Checkpoint) -> str:
    return _line({"type": "checkpoint", **checkpoint.model_dump(mode="json")})


async def iterate(items: Iterable[Any]) -> AsyncIterator[Any]:
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
    """Return the text of unreadable facts: otherwise one entry would prevent the export of all others.

    Verification reports the record as changed.
    """
    try:
        return record.facts
    except (Refused, RecursionError):
        return record.data


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
