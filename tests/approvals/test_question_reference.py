from datetime import UTC, datetime
from typing import Any

from tables import table

from signoff.approvals import binding, deadlines
from signoff.approvals.digest import call_digest
from signoff.approvals.question_reference import reference_from_request, request_from_reference
from signoff.contracts.activity_messages import GateDecision, QuestionReference
from signoff.contracts.approval import ApprovalRequest, ApproverGroup, Card, CardRow, Question
from signoff.contracts.call import CallContext, RuleReference
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.message import CallPart
from signoff.contracts.person import Principal
from signoff.formats.replace import replace
from signoff.testing import a_request

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
USER = Principal(user="guest", nonce="n")
CTX = CallContext(actor="desk", session="s", turn="t", tenant="main", channel="api", user=USER)
CALL = CallPart(call="c1.1", tool="pay", args=Content(inline={"amount": 420}))
ROWS = (CardRow(name="amount", label="Amount", value="420"),)
LEFT_IN_THE_STORE = {
    "context", "definition", "secrets", "show", "rule_text", "policy_hash", "override", "applied", "confirm",
    "grant_ttl", "notify", "agent_says", "notes", "judged_at",
}  # fmt: skip
"""Fields that only showing, signing or running needs, and that are read from the store."""


def asked(**fields: Any) -> ApprovalRequest:
    given: dict[str, Any] = {
        "revision": 2, "actor": "desk", "requester": USER, "channel": "api", "args": CALL.args,
        "digest": "d" * 64, "rule": RuleReference(name="deny_if"), "question_hash": "f" * 64, "opened_at": NOW,
        "card": Card(effect="Pay 420", rows=ROWS, note="asked again", tool_title="Pay", mark="m"),
        "approvers": ("role:a", "role:b"), "quorum": 2, "groups": (ApproverGroup(of=("role:b",)),), "veto": False,
        "allow_self": True, "proposers": ("ana",), "allow_remember": True, "min_assurance": "mfa",
        "accept_unsigned": True, "level": "admin", "timeout": 60.0, "remind_after": 10.0, "escalate_after": 20.0,
        "escalate_to": ("role:c",), "on_timeout": "escalate", "secrets": ("pin",), "definition": "e" * 64,
        "rule_text": "args.amount > 100", "policy_hash": "p", "agent_says": "please",
    }  # fmt: skip
    return a_request(opened=NOW, **given | fields)


def kept(request: ApprovalRequest) -> ApprovalRequest:
    gate_decision = GateDecision(call="c1.1", kind="ask", digest=request.digest, rule=request.rule)
    return request_from_reference(reference_from_request(request, CALL), gate_decision, CALL, CTX)


@table("fields", {}, {"kind": "in_doubt", "doubt_of": 1}, {"edit": "approve"})
def test_reference_keeps_all_fields_for_counting_waiting_and_naming(fields: dict[str, Any]) -> None:
    request = asked(**fields)
    own = kept(request)
    same = set(ApprovalRequest.model_fields) - LEFT_IN_THE_STORE - {"card"}
    assert {name: getattr(own, name) for name in same} == {name: getattr(request, name) for name in same}
    assert (own.card.effect, own.card.note) == ("Pay 420", "asked again")
    assert deadlines.next_event(own) == deadlines.next_event(request)


def test_reference_omits_the_calls_own_data() -> None:
    same = reference_from_request(asked(), CALL)
    assert (same.args, same.definition) == (None, "")
    other = Content(inline={"amount": 42})
    changed = reference_from_request(asked(args=other, edit_of=1), CALL)
    assert (changed.args, changed.definition) == (other, "e" * 64)


def test_new_field_of_a_question_is_kept_or_omitted_on_purpose() -> None:
    """A new field must be assigned: if a turn's form omits it silently, answers count with its default."""
    from_ctx = {"id", "tenant", "session", "turn", "actor", "call", "requester", "channel", "tool", "digest", "rule"}
    endings = {"ended_at", "ended_as"}
    known = set(QuestionReference.model_fields) | from_ctx | endings | LEFT_IN_THE_STORE
    assert set(Question.model_fields) - known == set()


def test_rows_are_kept_if_approvers_may_edit() -> None:
    assert kept(asked()).card.rows == ()
    assert kept(asked(edit="propose")).card.rows == ROWS


def test_edit_is_checked_with_the_kept_reference() -> None:
    changed = {"amount": 9}
    place = {"tenant": "main", "session": "s", "turn": "t", "call": "c1.1", "requester": "guest", "nonce": "n"}
    digest = call_digest(**place, tool="pay", definition="e" * 64, args=changed)
    own = kept(asked(edit="approve", edit_of=1, args=Content(inline=changed), digest=digest))
    assert own.args.inline == changed
    answer = Decision(approval_id=own.id, revision=1, verdict="approved", edited_args=changed)
    assert binding.is_answer_to(answer, own, own.question_hash)
    assert not binding.is_answer_to(replace(answer, edited_args={"amount": 10}), own, own.question_hash)
