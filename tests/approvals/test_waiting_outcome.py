"""What a model is told of a call that people are asked about while its turn goes on, and once it has ended."""

from typing import Any

from tables import table

from signoff.approvals.waiting_outcome import late_result, outcome_message, waiting_outcome
from signoff.contracts.call import CallOutcome
from signoff.contracts.content import BlobRef, Content
from signoff.contracts.message import Message, ResultPart, TextPart
from signoff.contracts.turn import WaitingCall

REMARK = "Outcome of c1.1 (`pay`), which waited for approval, K7Q-2FM: ToolResult."
LARGE = Content(blob=BlobRef(sha256="a" * 64, size=9_000, preview="Paid, and"))


def ended(**fields: Any) -> CallOutcome:
    """The outcome of a payment that people approved."""
    return CallOutcome(**{"call": "c1.1", "tool": "pay", "code": "ok", "value": Content(inline="Paid")} | fields)


def test_a_call_that_waits_names_its_request() -> None:
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
def test_a_late_result_says_what_it_is_the_result_of(note: str, told: str) -> None:
    assert late_result(ended(note=note), "K7Q2FM") == ResultPart(
        call="c1.1", tool="pay", code="ok", value=Content(inline="Paid"), note=told, late=True
    )


@table(
    ("value", "told"),
    (Content(inline="Pago: é"), Content(inline="Pago: é")),
    (Content(inline={"para": "José"}), Content(inline='{"para": "José"}')),
    (LARGE, LARGE),
)
def test_a_session_is_told_of_a_call_that_its_turn_did_not_await(value: Content, told: Content) -> None:
    assert outcome_message(ended(value=value), "K7Q2FM") == Message(
        role="user", parts=(TextPart(text=Content(inline=REMARK)), TextPart(text=told))
    )
