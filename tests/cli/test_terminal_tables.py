from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console

from signoff.cli.terminal.tables import ago, call_line, until, waiting_table
from signoff.contracts.call import REQUIRES_APPROVAL, CallOutcome, RuleReference
from signoff.contracts.content import Content
from signoff.contracts.responses import WaitingCard
from signoff.contracts.turn import CallView
from signoff.formats.replace import replace


def summary(code: Any, **fields: Any) -> str:
    outcome = CallOutcome(call="c1.1", tool="book", code=code, value=Content(inline="no seat left"), **fields)
    return call_line(CallView(call="c1.1", tool="book", state=code, outcome=outcome)).plain


def test_failed_tool_names_its_fallback() -> None:
    for code in ("ok", "execution_failed", "denied"):
        line = summary(code, fallback="look", primary_error="no\nline")
        assert line == "  book: execution failed: no line; fallback: look"
    assert "fallback" not in summary("ok")


def test_call_without_a_deciding_rule_names_no_rule() -> None:
    def line(rule: RuleReference | None) -> str:
        outcome = CallOutcome(call="c1.1", tool="book", code="ok", value=Content(inline="booked"))
        return call_line(CallView(call="c1.1", tool="book", state="ok", outcome=outcome, rule=rule)).plain

    assert line(REQUIRES_APPROVAL) == line(None) == "  book: ran"
    assert line(RuleReference(name="auto_approve_if")) == "  book: ran by rule auto_approve_if"


def test_deadline_of_24_hours_shows_24_h_after_two_seconds() -> None:
    opened = datetime(2026, 11, 21, 17, 0, tzinfo=UTC)
    now = opened + timedelta(seconds=2)
    assert until(opened + timedelta(hours=24), now).endswith(" (in 24 h)")
    assert until(opened, now).endswith(" (deadline passed)")
    assert (until(None, now), ago(None, now)) == ("", "")
    assert (ago(opened, now), ago(now - timedelta(days=2, seconds=2), now)) == ("just now", "2 days ago")


def test_list_of_requests_names_the_holder_and_the_time_left() -> None:
    now = datetime(2026, 11, 21, 17, 0, tzinfo=UTC)
    card = WaitingCard(id="main.s.t.c1", code="K7Q2FM", effect="Pay", taken_by="ana")
    held = replace(card, taken_until=now + timedelta(minutes=12))
    console = Console(width=300)
    with console.capture() as capture:
        console.print(waiting_table([held, WaitingCard(id="main.s.t.c2", code="K7Q2FN", effect="Book")], now))
    [_, first, second] = capture.get().splitlines()
    assert "Pay (taken by ana until " in first
    assert "(in 12 min)" in first
    assert "taken" not in second
