"""Buffers the audit entries of a turn until its next activity writes them."""

from collections.abc import Sequence
from typing import Final

from signoff.contracts.audit import AuditEntry

ENTRIES_KEPT: Final = 100
"""Refusals beyond this many, between two activities, are counted only: a flood must not fill a turn's history."""


class AuditBuffer:
    """Keeps entries in their order. None is lost: what an activity did not write is given back."""

    def __init__(self) -> None:
        self._entries: list[AuditEntry] = []
        self._dropped = 0
        self._last: AuditEntry | None = None

    def add(self, entry: AuditEntry) -> None:
        """Keeps an entry until it is taken; one that is kept already, once."""
        if any(entry.key == kept.key for kept in self._entries):
            return
        if len(self._entries) >= ENTRIES_KEPT and entry.data.get("status") == "refused":
            self._dropped += 1
            self._last = entry
            return
        self._entries.append(entry)

    def take(self) -> tuple[AuditEntry, ...]:
        """Returns all entries, without a stream: whatever an envelope named, it is the turn's own that they belong
        to.
        """
        if self._last is not None:
            told = {"key": f"dropped/{self._last.key}", "data": {"dropped": self._dropped, "status": "refused"}}
            self._entries.append(self._last.model_copy(update=told))
        taken = [entry.model_copy(update={"stream": "", "tenant": ""}) for entry in self._entries]
        self._entries, self._dropped, self._last = [], 0, None
        return tuple(taken)

    def give_back(self, entries: Sequence[AuditEntry]) -> None:
        """Takes entries back that an activity was handed and did not write."""
        self._entries[:0] = entries
