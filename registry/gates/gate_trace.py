"""Explains a call gate by gate, from one decision, so that a new gate is in it by itself."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from signoff.registry.gates.local_decision import GateName, LocalGateDecision

# The order in which `GateName` lists them is the one order of gates.
_ORDER: Final[tuple[GateName, ...]] = get_args(GateName)
_OF_ARGUMENTS: Final = _ORDER.index("schema")
"""From here on gates look at arguments, so that without them nothing can be said."""
_WORDS: Final = {"run": "it runs, nobody is asked", "ask": "people are asked"}


@dataclass(frozen=True)
class GateTraceEntry:
    """What one gate decides about a call."""

    gate: GateName
    """The gate."""
    answer: Literal["passes", "decides", "open", "unasked"]
    """`passes`, or `decides` the call; `open` without arguments; `unasked` after a decision."""
    words: str = ""
    """Why, where there is more to say."""


def gate_trace(found: LocalGateDecision, *, with_arguments: bool, needs: str = "") -> tuple[GateTraceEntry, ...]:
    """Returns every gate in order. `found` is the gates' decision on the call, or of one without arguments.

    `needs` is what the tool's policy says for itself, told of the last gate where no arguments are given.
    """
    decides = _ORDER.index(found.gate)
    if with_arguments or decides < _OF_ARGUMENTS:
        return tuple(_trace_entry(index, decides, found) for index in range(len(_ORDER)))
    early = tuple(GateTraceEntry(gate, "passes") for gate in _ORDER[:_OF_ARGUMENTS])
    late = tuple(GateTraceEntry(gate, "open", "depends on the arguments") for gate in _ORDER[_OF_ARGUMENTS:-1])
    return (*early, *late, GateTraceEntry(_ORDER[-1], "open", needs))


def _trace_entry(index: int, decides: int, found: LocalGateDecision) -> GateTraceEntry:
    gate = _ORDER[index]
    if index < decides:
        return GateTraceEntry(gate, "passes")
    if index > decides:
        return GateTraceEntry(gate, "unasked")
    why = found.verdict.why if found.verdict is not None else ""
    words = found.message or ": ".join(filter(None, (_WORDS[found.kind], why)))
    return GateTraceEntry(gate, "decides", words)
