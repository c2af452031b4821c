"""Checks the audit log of a story as an auditor would: with the public commands."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from demo.polling import expect
from demo.stage import Stage
from signoff.contracts.ids import TurnKey

_TRIES = 5


@dataclass(frozen=True)
class Recorded:
    """The audit log of some turns, and a sentence on its verification."""

    words: str
    records: Mapping[TurnKey, list[dict[str, Any]]]

    def of(self, key: TurnKey, kind: str) -> list[tuple[str, dict[str, Any]]]:
        """Return subject and data of each record of one kind in a turn, in order."""
        return [(each["subject"], json.loads(each["data"])) for each in self.records[key] if each["kind"] == kind]


async def recorded(stage: Stage, *keys: TurnKey) -> Recorded:
    """Checkpoint, verify and read the audit log. Raises `Unexpected` if a record was changed."""
    for _ in range(_TRIES):
        await stage.command("audit", "checkpoint")
        report = await stage.command("audit", "verify")
        # The gateway records a turn's end within seconds, perhaps between the two commands.
        if not report["uncovered"]:
            break
    turns = await asyncio.gather(*(stage.command("audit", "show", key.workflow_id) for key in keys))
    expect("that the record is whole", (True, None), (report["whole"], report["finding"]))
    expect("records that no checkpoint vouches for", 0, report["uncovered"])
    expect("turns whose record is not as it was written", [], [turn["finding"] for turn in turns if turn["finding"]])
    words = f"`signoff audit verify`: {report['records']} records, none changed or missing, under a signed checkpoint"
    return Recorded(words, {key: turn["records"] for key, turn in zip(keys, turns, strict=True)})
