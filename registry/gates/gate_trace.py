"""Explains a decision gate by gate."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from signoff.registry.gates.judged_call import GateName, JudgedCall

# The order of the names in `GateName` is the order of the gates.
_ORDER: Final[tuple[GateName, ...]] = get_args(GateName)
_OF_ARGUMENTS: Final = _ORDER.index("schema")
"""From here on gates need the arguments."""
_WORDS: Final = {"run": "it runs without approval", "ask": "people are asked"}


@dataclass(frozen=True)
class GateTraceEntry:
    """One gate's part in a decision about a call."""

    gate: GateName
    answer: Literal["passes", "decides", "open", "unasked"]
    """`passes`, or `decides` the call; `open` without arguments; `unasked` after a decision."""
    words: str = ""
    """"" if there is no more to report."""


def gate_trace(found: JudgedCall, *, with_arguments: bool, needs: str = "") -> tuple[GateTraceEntry, ...]:
    """Return every gate in order.

    `needs` describes the tool's own policy. The last gate shows it if there are no arguments.
    """
    decides = _ORDER.index(found.gate)
    if with_arguments or decides < _OF_ARGUMENTS:
        return tuple(_trace_entry(index, decides, found) for index in range(len(_ORDER)))
    early = tuple(GateTraceEntry(gate, "passes") for gate in _ORDER[:_OF_ARGUMENTS])
    late = tuple(GateTraceEntry(gate, "open", "depends on the arguments") for gate in _ORDER[_OF_ARGUMENTS:-1])
    return (*early, *late, GateTraceEntry(_ORDER[-1], "open", needs))


def _trace_entry(index: int, decides: int, found: JudgedCall) -> GateTraceEntry:
    gate = _ORDER[index]
    if index < decides:
        return GateTraceEntry(gate, "passes")
    if index > decides:
        return GateTraceEntry(gate, "unasked")
    why = found.verdict.why if found.verdict is not None else ""
    words = found.message or ": ".join(filter(None, (_WORDS[found.kind], why)))
    return GateTraceEntry(gate, "decides", words)
