"""Buffers the audit entries of a turn until its next activity writes them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from signoff.contracts.audit import AuditEntry
from signoff.contracts.ids import ApprovalKey, TurnKey, parse_approval_id
from signoff.formats.replace import replace

ENTRIES_KEPT: Final = 100
"""The number of entries from which further refusals are only counted.

A flood between two activities must not fill a turn's history.
"""

_CALL: Final = "of_call"
"""Name of the fact with the approval's call, if it differs from the entry's `call`."""


class KnownFacts(NamedTuple):
    """Facts of entries that an activity knows from its other input."""

    key: str
    """The prefix of the keys of those entries."""
    known: Mapping[str, Any]


class AuditBuffer:
    """Keeps entries in order and loses none. Without a `turn`, approvals have their full ids."""

    def __init__(self, turn: TurnKey | None = None) -> None:
        self._turn = turn
        self._entries: list[AuditEntry] = []
        self._dropped = 0
        self._last: AuditEntry | None = None

    def add(self, entry: AuditEntry) -> None:
        """Ignores a repeated entry."""
        if any(entry.key == kept.key for kept in self._entries):
            return
        if len(self._entries) >= ENTRIES_KEPT and entry.data.get("status") == "refused":
            self._dropped += 1
            self._last = entry
            return
        self._entries.append(entry)

    def take(self) -> tuple[AuditEntry, ...]:
        """Return all entries, without a stream.

        They belong to the turn itself, not to one named in a message.
        """
        if self._last is not None:
            data = {"dropped": self._dropped, "status": "refused"}
            self._entries.append(replace(self._last, key=f"dropped/{self._last.key}", data=data))
        taken = [replace(entry, stream="", tenant="", data=_short(entry.data, self._turn)) for entry in self._entries]
        self._entries, self._dropped, self._last = [], 0, None
        return tuple(taken)

    def give_back(self, entries: Sequence[AuditEntry]) -> None:
        """Take back entries that an activity received but did not write."""
        self._entries[:0] = entries


def fold_facts(entries: Sequence[AuditEntry], facts: KnownFacts) -> tuple[AuditEntry, ...]:
    """Shortens only entries that contain all of these facts, unchanged. `unfold_facts` restores them."""
    return tuple(
        replace(entry, data={name: fact for name, fact in entry.data.items() if name not in facts.known})
        if entry.key.startswith(facts.key) and facts.known.items() <= entry.data.items()
        else entry
        for entry in entries
    )


def unfold_facts(entries: Sequence[AuditEntry], facts: KnownFacts) -> tuple[AuditEntry, ...]:
    return tuple(
        replace(entry, data={**entry.data, **facts.known})
        if entry.key.startswith(facts.key) and facts.known.keys().isdisjoint(entry.data)
        else entry
        for entry in entries
    )


def whole_facts(data: Mapping[str, Any], turn: TurnKey) -> dict[str, Any]:
    """Return the facts of an entry passed on by `turn`, with the full id of their approval."""
    whole = {name: fact for name, fact in data.items() if name != _CALL}
    call = data.get(_CALL, data.get("call"))
    return {"approval": ApprovalKey(turn, call).id, **whole} if isinstance(call, str) else whole


def _short(data: dict[str, Any], turn: TurnKey | None) -> dict[str, Any]:
    """Replace the approval's id by its call: the id repeats tenant, session and turn."""
    named = parse_approval_id(str(data.get("approval")))
    if named is None or named.turn != turn:
        return data
    rest = {name: fact for name, fact in data.items() if name != "approval"}
    return rest if rest.get("call") == named.call else {_CALL: named.call, **rest}
