from datetime import UTC, datetime
from typing import Any

from some import some
from tables import table

from signoff.approvals.approval_outcomes import (
    denial_from_request,
    denied_outcome,
    happened_outcome,
    late_result,
    outcome_message,
    repeated_denial,
    repeated_outcome,
    waiting_outcome,
)
from signoff.contracts.call import REQUIRES_APPROVAL, CallOutcome, ToolDenied
from signoff.contracts.content import BlobRef, Content
from signoff.contracts.decision import Decision
from signoff.contracts.message import Message, ResultPart, TextPart
from signoff.contracts.turn import Denial, WaitingCall
from signoff.formats.replace import replace
from signoff.testing import a_request

REMARK = "Outcome of c1.1 (`pay`), which waited for approval, K7Q-2FM: ToolResult."
LARGE = Content(blob=BlobRef(sha256="a" * 64, size=9_000, preview="Paid, and"))
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
ENDED: dict[str, Any] = {
    "id": "main.s.t.c1.1",
    "state": "denied",
    "decided_by": "bo",
    "decided_at": AT,
    "reason": "too expensive",
    "rule": REQUIRES_APPROVAL,
    "level": "operator",
}


def ended(**fields: Any) -> CallOutcome:
    return CallOutcome(**{"call": "c1.1", "tool": "pay", "code": "ok", "value": Content(inline="Paid")} | fields)


def test_waiting_call_names_its_request() -> None:
    asked = WaitingCall(action="0123", approval_id="main.s.t.c1.1", code="K7Q2FM")
    assert waiting_outcome("c1.2", "pay", asked) == CallOutcome(
        call="c1.2",
        tool="pay",
        code="waiting",
        gate="approval",
        value=Content(inline="waiting for approval, K7Q-2FM"),
        approval_id="main.s.t.c1.1",
    )


@table(("note", "told"), ("", REMARK), ("A person changed arguments.", f"{REMARK} A person changed arguments."))
def test_late_result_names_its_call(note: str, told: str) -> None:
    assert late_result(ended(note=note), "K7Q2FM") == ResultPart(
        call="c1.1", tool="pay", code="ok", value=Content(inline="Paid"), note=told, late=True
    )


@table(
    ("value", "told"),
    (Content(inline="Pago: é"), Content(inline="Pago: é")),
    (Content(inline={"para": "José"}), Content(inline='{"para": "José"}')),
    (LARGE, LARGE),
)
def test_session_gets_a_message_about_an_unawaited_call(value: Content, told: Content) -> None:
    assert outcome_message(ended(value=value), "K7Q2FM") == Message(
        role="user", parts=(TextPart(text=Content(inline=REMARK)), TextPart(text=told))
    )


def test_denial_is_the_result_of_its_call() -> None:
    denied = ToolDenied(
        source="human",
        approval_id="main.s.t.c1.1",
        tool="pay",
        call_id="c1.1",
        decided_by="bo",
        reason="too expensive",
        decided_at=AT,
        level="operator",
    )
    assert denied_outcome(a_request(**ENDED)) == CallOutcome(
        call="c1.1",
        tool="pay",
        code="denied",
        gate="approval",
        value=Content(
            inline={
                "type": "ToolDenied",
                "code": "denied",
                "source": "human",
                "approval_id": "main.s.t.c1.1",
                "tool": "pay",
                "call_id": "c1.1",
                "decided_by": "bo",
                "reason": "too expensive",
                "decided_at": "2026-01-01T12:00:00Z",
                "level": "operator",
            }
        ),
        approval_id="main.s.t.c1.1",
        decided_by="bo",
        rule=REQUIRES_APPROVAL,
        denied=denied,
    )


@table(
    ("state", "source", "reason"),
    ("denied", "human", ""),
    ("timed_out", "timeout", "Nobody answered in time."),
    ("cancelled", "cancelled", "The request was withdrawn."),
)
def test_end_without_a_reason_has_a_default_reason(state: str, source: str, reason: str) -> None:
    found = some(denied_outcome(a_request(**ENDED | {"state": state, "reason": ""})).denied)
    assert (found.source, found.reason) == (source, reason)
    given = some(denied_outcome(a_request(**ENDED | {"state": state})).denied)
    assert given.reason == "too expensive"


def test_same_action_is_denied_again_by_the_same_decision() -> None:
    denial = denial_from_request(a_request(**ENDED), "0123")
    assert denial == Denial(
        action="0123",
        approval_id="main.s.t.c1.1",
        decided_by="bo",
        reason="too expensive",
        decided_at=AT,
        level="operator",
    )
    assert repeated_denial(denial, "c2.1", "pay") == ToolDenied(
        source="repeat",
        approval_id="main.s.t.c1.1",
        tool="pay",
        call_id="c2.1",
        decided_by="bo",
        reason="too expensive",
        decided_at=AT,
        level="operator",
    )
    silent = replace(denial, reason="")
    assert repeated_denial(silent, "c2.1", "pay").reason == ""
    assert repeated_outcome(silent, "c2.1", "pay") == CallOutcome(
        call="c2.1",
        tool="pay",
        code="denied",
        gate="approval",
        value=Content(inline=repeated_denial(silent, "c2.1", "pay").for_model()),
        denied=repeated_denial(silent, "c2.1", "pay"),
    )


@table(("result", "expected"), ("receipt 17", "receipt 17"), ("", "It happened."))
def test_confirmed_call_has_a_result_marked_as_a_persons_report(result: str, expected: str) -> None:
    word = Decision(
        approval_id="main.s.t.c1.1", verdict="happened", result=result, subject="ana", reason="I called the bank"
    )
    assert happened_outcome("c1.1", "pay", word) == CallOutcome(
        call="c1.1",
        tool="pay",
        code="ok",
        gate="execute",
        value=Content(inline=expected),
        approval_id="main.s.t.c1.1",
        decided_by="ana",
        note="The tool did not answer; a person says that this happened.",
    )
