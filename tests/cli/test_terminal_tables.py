from typing import Any

from signoff.cli.terminal.tables import call_line
from signoff.contracts.call import REQUIRES_APPROVAL, CallOutcome, RuleReference
from signoff.contracts.content import Content
from signoff.contracts.turn import CallView


def summary(code: Any, **fields: Any) -> str:
    outcome = CallOutcome(call="c1.1", tool="book", code=code, value=Content(inline="no seat left"), **fields)
    return call_line(CallView(call="c1.1", tool="book", state=code, outcome=outcome)).plain


def test_what_stood_in_for_a_tool_that_failed_is_named() -> None:
    for code in ("ok", "execution_failed", "denied"):
        line = summary(code, fallback="look", primary_error="no\nline")
        assert line == "  book: execution failed: no line; fallback: look"
    assert "fallback" not in summary("ok")


def test_a_call_whose_tool_asks_nobody_ran_by_no_rule() -> None:
    def line(rule: RuleReference | None) -> str:
        outcome = CallOutcome(call="c1.1", tool="book", code="ok", value=Content(inline="booked"))
        return call_line(CallView(call="c1.1", tool="book", state="ok", outcome=outcome, rule=rule)).plain

    assert line(REQUIRES_APPROVAL) == line(None) == "  book: ran"
    assert line(RuleReference(name="auto_approve_if")) == "  book: ran by rule auto_approve_if"
