"""Logs entries of the record as they are written: what happened, to which call, and no argument, result or reason."""

import logging
from typing import Any, Final

from signoff.contracts.audit import AuditEntry
from signoff.telemetry.json_log import FACTS, RECORD_LOGGER, fields_of_turn

_LOGGED: Final = (
    "tool", "actor", "code", "gate", "verdict", "status", "receipt", "channel", "event", "state", "ended", "error",
    "act", "revision", "duration_ms",
)  # fmt: skip
_log = logging.getLogger(RECORD_LOGGER)
# Where nobody set a level, a program's own may be lower: such lines are for those who ask for them.
_log.setLevel(logging.WARNING)


def log_entry(entry: AuditEntry) -> None:
    """Logs an entry that was written, unless it is a turn's word of what others have seen."""
    if not _log.isEnabledFor(logging.INFO) or (entry.data.get("by") == "turn" and entry.kind != "turn"):
        return
    facts: dict[str, Any] = {**fields_of_turn(entry.stream), "kind": entry.kind}
    facts.setdefault("tenant", entry.tenant)
    facts |= {name: entry.data[name] for name in _LOGGED if name in entry.data}
    if "call" in entry.data:
        facts |= {"call": entry.data["call"], "request": entry.data.get("approval", "")}
    _log.info("%s", entry.kind, extra={FACTS: facts})
