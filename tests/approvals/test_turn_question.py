from datetime import UTC, datetime
from typing import Any

import pytest
from tables import table

from signoff.approvals.turn_question import turn_question
from signoff.contracts.approval import ApprovalRequest, ApproverGroup, Card, TurnQuestion
from signoff.contracts.content import Content
from signoff.contracts.message import CallPart
from signoff.testing import a_request

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TERMS: dict[str, Any] = {
    "quorum": 2,
    "groups": (ApproverGroup(of=("role:legal",)),),
    "approvers": ("role:legal", "user:ana"),
    "min_assurance": "mfa",
    "timeout": 60.0,
    "remind_after": 20.0,
    "escalate_after": 30.0,
    "escalate_to": ("user:cfo",),
    "on_timeout": "escalate",
}
KNOWN: dict[str, Any] = {
    "kind": "in_doubt",
    "code": "K7Q2FM",
    "revision": 3,
    "question_hash": "h3",
    "level": "admin",
    "opened_at": NOON,
}


def asked(amount: float = 20) -> ApprovalRequest:
    card = Card(effect="Pay 20", note="the tool changed")
    return a_request(args=Content(inline={"amount": amount}), card=card, **TERMS, **KNOWN)


def call(amount: float) -> CallPart:
    return CallPart(call="c1.1", tool="pay", args=Content(inline={"amount": amount}))


def test_turn_keeps_the_terms_and_the_effect_of_its_question() -> None:
    kept = TurnQuestion(effect="Pay 20", note="the tool changed", **TERMS, **KNOWN)
    assert turn_question(asked(), call(20)) == kept


@table(
    ("proposed", "args"),
    pytest.param(call(20), None, id="the arguments of the call"),
    pytest.param(call(20.0), None, id="the same number in another form"),
    pytest.param(call(21), asked().args, id="other arguments"),
    pytest.param(None, asked().args, id="no call of the turn"),
)
def test_turn_keeps_the_arguments_only_if_its_call_has_others(proposed: CallPart | None, args: Content | None) -> None:
    assert turn_question(asked(), proposed).args == args
