"""Converts entries of the record to what they count for: metrics are made of what a process wrote down, and agree with
it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from signoff.contracts.audit import AuditEntry
from signoff.contracts.turn import FinalState
from signoff.telemetry.counts import Count
from signoff.telemetry.metric_table import OTHER

_ASKED: Final = ("request", "revision", "in_doubt")
_TIMED: Final = ("remind", "escalate", "deadline")
_ENDS: Final = frozenset((*get_args(FinalState), "failed", "terminated", "timed_out"))
"""States in which turns end, and those in which Temporal ends them."""
_CARDS: Final = {
    "sent": "sent",
    "reminded": "reminded",
    "failed": "failed",
    "closed": "closed",
    "not closed": "not_closed",
}


def counts_from_entry(entry: AuditEntry) -> Iterator[Count]:
    """Yields the counts of a new entry.

    A turn's own word counts for its beginning and its end alone: whatever else it tells, an activity or a gateway has
    seen and recorded.
    """
    if entry.kind == "turn":
        yield from _of_turn(entry.tenant, entry.data)
    elif entry.data.get("by") != "turn":
        yield from _of_call(entry.kind, entry.data)


def _of_turn(tenant: str, facts: Mapping[str, Any]) -> Iterator[Count]:
    if "session_event" in facts or "stop" in facts:
        return
    if "ended" in facts:
        # A turn says so itself: whoever may write to Temporal could use up all series by words of their own.
        state = str(facts["ended"])
        yield Count("signoff_turns_ended", (tenant, state if state in _ENDS else OTHER))
    else:
        yield Count("signoff_turns_started", (tenant,))


def _of_call(kind: str, facts: Mapping[str, Any]) -> Iterator[Count]:
    if kind in _ASKED and "approvers" in facts:
        if not facts.get("edited_by"):
            yield _gate_outcome("asked", "approval")
    elif kind == "auto":
        yield _gate_outcome("allowed", "approval")
    elif kind == "grant" and "act" not in facts:
        yield _gate_outcome("remembered", "approval")
    elif kind == "verdict":
        yield _gate_outcome(str(facts.get("code", "")), str(facts.get("gate", "")))
    elif kind in ("outcome", "in_doubt") and "code" in facts and "untaken" not in facts:
        tool = str(facts.get("tool", ""))
        yield Count("signoff_tool_calls", (tool, str(facts["code"])))
        yield Count("signoff_tool_call_duration_seconds", (tool,), float(facts.get("duration_ms", 0)) / 1000)
    elif kind == "attempt" and "verdict" in facts:
        outcome = facts.get("receipt") or facts.get("status", "")
        yield Count("signoff_decisions", (str(facts.get("channel", "")), str(facts["verdict"]), str(outcome)))
    elif kind == "delivery":
        yield from _of_delivery(facts)
    elif kind == "ending" and facts.get("state") == "timed_out":
        yield Count("signoff_request_deadlines", ("expired",))


def _of_delivery(facts: Mapping[str, Any]) -> Iterator[Count]:
    event = str(facts.get("event", ""))
    if event in _TIMED:
        yield Count("signoff_request_deadlines", (event,))
    elif event in _CARDS:
        yield Count("signoff_card_deliveries", (str(facts.get("channel", "")), _CARDS[event]))


def _gate_outcome(outcome: str, gate: str) -> Count:
    return Count("signoff_gate_outcomes", (outcome, gate))
