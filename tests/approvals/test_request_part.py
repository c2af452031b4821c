from datetime import UTC, datetime

from tables import table

from signoff.approvals.request_part import part_from_request
from signoff.contracts.approval import Card, CardRow
from signoff.contracts.responses import AnswerLinks
from signoff.testing import a_request

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LINKS = AnswerLinks(api="/approvals/a", session="/sessions/s", page="/approve/a", channels=("mail",))


@table("cut", False, True)
def test_request_part_equals_its_card(cut: bool) -> None:
    row = CardRow(name="amount", label="Amount", value="420", length=3, format="number", cut=cut)
    request = a_request(
        opened=NOW,
        kind="in_doubt",
        revision=2,
        question_hash="f" * 64,
        actor="billing",
        card=Card(effect="Pay 420", rows=(row,)),
        approvers=("role:finance", "user:ana"),
        quorum=2,
        timeout=60.0,
    )
    part = part_from_request(request, LINKS)
    assert part.type == "approval-request"
    assert part.content.inline == {
        "approval_id": "main.s.t.c1.1",
        "code": "K7Q2FM",
        "kind": "in_doubt",
        "revision": 2,
        "question_hash": "f" * 64,
        "actor": "billing",
        "call": "c1.1",
        "tool": "pay",
        "effect": "Pay 420",
        "arguments": [row.model_dump(mode="json")],
        "whole": not cut,
        "expires_at": "2026-01-01T12:01:00Z",
        "approvers": ["role:finance", "user:ana"],
        "quorum": 2,
        "groups": [],
        "min_assurance": "channel",
        "timeout": 60.0,
        "remind_after": None,
        "escalate_after": None,
        "escalate_to": [],
        "on_timeout": "deny",
        "where": {"api": "/approvals/a", "session": "/sessions/s", "page": "/approve/a", "channels": ["mail"]},
    }
