from datetime import UTC, datetime

from registry_kit import a_call, a_tool

from signoff.contracts.activity_messages import GateDecision
from signoff.contracts.call import ToolDenied
from signoff.formats.replace import replace
from signoff.registry.gates.judged_call import JudgedCall, denied_decision, settled_decision

TOOL = a_tool()


def test_settled_decision_ends_the_call_with_its_message() -> None:
    found = settled_decision(a_call(), "usage", "not_available", "used up", TOOL)
    assert (found.kind, found.gate, found.code, found.message) == ("settled", "usage", "not_available", "used up")
    assert (found.tool, found.words) == (TOOL, ("used up",))
    assert (found.decision.call, found.outcome.call, found.outcome.tool) == ("c1.1", "c1.1", "book_flight")
    assert settled_decision(a_call("gone"), "resolve", "not_available", "no such tool").tool is None


def test_denial_outcome_names_source_and_reason() -> None:
    found = denied_decision(a_call(), "tag_policy", "money is frozen", TOOL)
    denied = ToolDenied(source="policy", tool="book_flight", call_id="c1.1", reason="money is frozen")
    assert (found.kind, found.gate, found.code, found.message) == ("settled", "tag_policy", "denied", denied.reason)
    assert found.tool is TOOL
    assert found.outcome.denied == denied
    assert found.outcome.value.inline == denied.model_dump(mode="json")


def test_denial_settles_a_call_that_would_run_or_be_asked() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    denied = ToolDenied(source="repeat", tool="book_flight", call_id="c1.1", decided_by="ana", decided_at=at)
    for kind in ("run", "ask"):
        found = JudgedCall(GateDecision(call="c1.1", kind=kind), tool=TOOL).deny(denied)
        assert (found.kind, found.gate, found.code, found.outcome.call) == ("settled", "approval", "denied", "c1.1")
        assert found.outcome.value.inline["decided_at"] == "2026-03-01T00:00:00Z"
        assert found.outcome.tool == "book_flight"


def test_outcome_may_be_reworded_and_a_denial_may_not() -> None:
    found = settled_decision(a_call(), "usage", "not_available", "used up", TOOL)
    reworded = found.reword(("used up today",))
    assert (reworded.message, reworded.words) == ("used up today", ("used up today",))
    assert replace(reworded.outcome, value=found.outcome.value) == found.outcome
    denied = denied_decision(a_call(), "approval", "no", TOOL)
    assert denied.reword("yes") is denied
    waits = JudgedCall(GateDecision(call="c1.1", kind="ask"), tool=TOOL)
    assert waits.reword("hello") is waits
    assert waits.message == ""


def test_changed_decision_keeps_its_evidence() -> None:
    found = settled_decision(a_call(), "usage", "not_available", "used up", TOOL)
    changed = found.decide(grant="g")
    assert changed.decision == replace(found.decision, grant="g")
    assert changed._replace(decision=found.decision) == found
