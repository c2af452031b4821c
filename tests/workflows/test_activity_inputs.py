from datetime import UTC, datetime

from signoff.contracts.activity_messages import GateDecision
from signoff.contracts.approval import ApprovalRequest, Card, Vote
from signoff.contracts.call import REQUIRES_APPROVAL, CallContext
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.message import CallPart
from signoff.contracts.person import Principal
from signoff.formats.replace import replace
from signoff.testing import a_decision
from signoff.workflows.activity_inputs import permit

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CTX = CallContext(actor="desk", session="s", turn="t", tenant="main", user=Principal(user="guest"))
CALL = CallPart(call="c1.1", tool="pay", args=Content(inline={"amount": 20}))
RULING = GateDecision(call="c1.1", kind="ask", digest="d" * 64, grant="g", override="o")


def approval_by(subject: str, **fields: str) -> Decision:
    return a_decision(revision=None, subject=subject, **fields)


def test_permit_carries_unsigned_answers_and_omits_stored_fields() -> None:
    # Signed answers are in the store, where the tool's activity reads them, so the permit omits them. It also omits
    # approval ids, which are always its own.
    signed, raw = approval_by("ana", signature="s", key_id="k"), approval_by("bo")
    votes = tuple(Vote(subject=each.subject, verdict="approved", at=NOW, decision=each) for each in (signed, raw))
    request = ApprovalRequest(
        id="main.s.t.c1.1", revision=3, tenant="main", turn="t", call="c1.1", tool="pay", args=CALL.args,
        digest="d" * 64, card=Card(effect="Pay"), requester=CTX.user, state="approved", votes=votes,
        rule=REQUIRES_APPROVAL,
    )  # fmt: skip
    made = permit(CTX, CALL, RULING, request, (signed, raw))
    bare = replace(raw, approval_id="")
    assert (made.kind, made.revision, made.decisions, made.doubts) == ("approved", 3, (bare,), (raw,))
    assert (made.digest, made.grant, made.override) == (RULING.digest, "g", "o")
    assert (made.approval_id, made.rule, made.policy_hash) == ("", None, "")


def test_permit_without_request_is_automatic() -> None:
    made = permit(CTX, CALL, RULING, None)
    assert (made.kind, made.decisions, made.doubts) == ("auto", (), ())
