"""Buffers the audit entries of a turn until its next activity writes them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from signoff.contracts.audit import AuditEntry
from signoff.contracts.ids import ApprovalKey, TurnKey, parse_approval_id
from signoff.formats.replace import replace

ENTRIES_KEPT: Final = 100
"""Refusals beyond this many, between two activities, are counted only: a flood must not fill a turn's history."""

_CALL: Final = "of_call"
"""In the facts of an entry on its way to an activity: the call whose approval it is about, unless it is its `call`."""


class KnownFacts(NamedTuple):
    """Facts of entries that are known from what the entries are handed with to an activity."""

    key: str
    """How the keys of those entries begin."""
    known: Mapping[str, Any]
    """The facts."""


class AuditBuffer:
    """Keeps entries in their order. None is lost: what an activity did not write is given back.

    `turn` is the turn whose entries these are; without one approvals are told by their whole ids.
    """

    def __init__(self, turn: TurnKey | None = None) -> None:
        self._turn = turn
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
            data = {"dropped": self._dropped, "status": "refused"}
            self._entries.append(replace(self._last, key=f"dropped/{self._last.key}", data=data))
        taken = [replace(entry, stream="", tenant="", data=_short(entry.data, self._turn)) for entry in self._entries]
        self._entries, self._dropped, self._last = [], 0, None
        return tuple(taken)

    def give_back(self, entries: Sequence[AuditEntry]) -> None:
        """Takes entries back that an activity was handed and did not write."""
        self._entries[:0] = entries


def fold_facts(entries: Sequence[AuditEntry], facts: KnownFacts) -> tuple[AuditEntry, ...]:
    """Returns `entries` without the facts that whoever gets them knows from what they are handed with.

    An entry is shortened only where it tells all of them, and the same; `unfold_facts` gives them back.
    """
    return tuple(
        replace(entry, data={name: fact for name, fact in entry.data.items() if name not in facts.known})
        if entry.key.startswith(facts.key) and facts.known.items() <= entry.data.items()
        else entry
        for entry in entries
    )


def unfold_facts(entries: Sequence[AuditEntry], facts: KnownFacts) -> tuple[AuditEntry, ...]:
    """Returns `entries` with the facts that `fold_facts` left out."""
    return tuple(
        replace(entry, data={**entry.data, **facts.known})
        if entry.key.startswith(facts.key) and facts.known.keys().isdisjoint(entry.data)
        else entry
        for entry in entries
    )


def whole_facts(data: Mapping[str, Any], turn: TurnKey) -> dict[str, Any]:
    """Returns the facts of an entry that `turn` was handed on with, which name their approval by its whole id."""
    whole = {name: fact for name, fact in data.items() if name != _CALL}
    call = data.get(_CALL, data.get("call"))
    return {"approval": ApprovalKey(turn, call).id, **whole} if isinstance(call, str) else whole


def _short(data: dict[str, Any], turn: TurnKey | None) -> dict[str, Any]:
    """Returns facts about an approval of `turn` that name it by its call alone: its id repeats tenant, session and
    turn.
    """
    named = parse_approval_id(str(data.get("approval")))
    if named is None or named.turn != turn:
        return data
    rest = {name: fact for name, fact in data.items() if name != "approval"}
    return rest if rest.get("call") == named.call else {_CALL: named.call, **rest}
