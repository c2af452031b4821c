"""One call, as the terminal tells of it."""

from typing import Any

from signoff.cli.words import call_line
from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.turn import CallView


def told(code: Any, **fields: Any) -> str:
    """The line of a call of `book` that ended so."""
    outcome = CallOutcome(call="c1.1", tool="book", code=code, value=Content(inline="no seat left"), **fields)
    return call_line(CallView(call="c1.1", tool="book", state=code, outcome=outcome)).plain


def test_what_stood_in_for_a_tool_that_failed_is_named() -> None:
    """Whoever reads that a call ran must not think that it was the tool which it names."""
    why = "by look in its place, because it failed: no line;"
    assert why in told("ok", fallback="look", primary_error="no\nline").replace("  ", " ")
    failed = told("execution_failed", fallback="look", primary_error="no line")
    assert why in failed
    assert failed.endswith(": no seat left")
    assert "in its place" not in told("ok")
