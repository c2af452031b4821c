from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from answering import decide
from tables import table

from signoff.approvals import deadlines, machine
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest, ApproverGroup, Vote
from signoff.contracts.decision import Decision, GrantRequest
from signoff.contracts.limits import REASON_CHARS
from signoff.contracts.preview import PreviewReference
from signoff.contracts.receipt import Receipt
from signoff.formats.replace import replace
from signoff.testing import a_decision, a_request

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
ID, OTHER = "main.s.t.c1.1", "main.s.t.c1.2"
ANA = Authority(allowed=True, subject="ana", name="Ana", assurance="mfa", unsigned=True)
BEN = Authority(allowed=True, subject="ben", name="Ben", assurance="link")


def request(approval_id: str = ID, **fields: Any) -> ApprovalRequest:
    return a_request(**{"id": approval_id, "timeout": 3600.0} | fields)


def answer(verdict: str = "approved", **fields: Any) -> Decision:
    return a_decision(**{"verdict": verdict, "reason": "because", "channel": "chat", "subject": "claimed"} | fields)


@pytest.mark.row("B73")
def test_vote_keeps_person_channel_and_time() -> None:
    after, receipt = decide(deadlines.open_request(request(quorum=1), NOW), answer(), ANA, LATER)
    assert after.votes == (
        Vote(
            subject="ana",
            name="Ana",
            verdict="approved",
            reason="because",
            channel="chat",
            assurance="mfa",
            at=LATER,
            unsigned=True,
            decision=answer(subject="ana"),
        ),
    )
    assert (after.state, after.decided_by, after.decided_name, after.decided_at) == ("approved", "ana", "Ana", LATER)
    assert (after.decided_channel, after.reason) == ("chat", "because")
    assert receipt == Receipt(
        status="accepted",
        code="",
        approval_id=ID,
        state="approved",
        verdict="approved",
        decided_by="ana",
        decided_name="Ana",
        decided_at=LATER,
        channel="chat",
        reason="because",
        votes=1,
        needed=1,
        message="",
    )


def test_ended_request_has_no_open_groups() -> None:
    group = ApproverGroup(of=("role:legal",))
    asked = deadlines.open_request(request(groups=(group,)), NOW)
    assert machine.settled_receipt(asked).open == (group,)
    assert machine.settled_receipt(replace(asked, state="cancelled")).open == ()


def test_refusal_has_the_note_of_the_identity_check() -> None:
    asked = deadlines.open_request(request(), NOW)
    receipt = machine.examine(asked, answer(), Authority(allowed=False, code="assurance", note="sign in again"), LATER)
    assert receipt is not None
    assert (receipt.code, receipt.message) == ("assurance", "sign in again")


def test_counted_vote_reports_the_missing_approvals() -> None:
    one, first = decide(deadlines.open_request(request(quorum=2), NOW), answer(), ANA, LATER)
    counted = Receipt(status="counted", code="", approval_id=ID, state="pending", votes=1, needed=2)
    assert first == counted
    assert (one.state, one.decided_by, one.decided_at, one.reason) == ("pending", "", None, "")
    same, again = decide(one, answer(), ANA, LATER)
    assert same is one
    assert again == replace(counted, code="duplicate")
    both, done = decide(one, answer(), BEN, LATER)
    assert (done.status, done.votes, done.needed, done.decided_by) == ("accepted", 2, 2, "ben")
    assert [vote.subject for vote in both.votes] == ["ana", "ben"]


def test_changed_answer_is_one_vote() -> None:
    one, _ = decide(deadlines.open_request(request(quorum=2, veto=False), NOW), answer("denied"), ANA, NOW)
    two, receipt = decide(one, answer(), ANA, LATER)
    assert [(vote.subject, vote.verdict) for vote in two.votes] == [("ana", "approved")]
    assert (receipt.status, receipt.votes) == ("counted", 1)


ENDINGS = [
    ("approved", "already_decided"),
    ("denied", "already_decided"),
    ("timed_out", "expired"),
    ("cancelled", "cancelled"),
    ("lapsed", "stale"),
]


@table(("state", "code"), *ENDINGS)
def test_late_answer_gets_the_complete_outcome(state: str, code: Any) -> None:
    ended = replace(
        deadlines.open_request(request(quorum=3), NOW),
        state=state,
        decided_by="ana",
        decided_name="Ana",
        decided_at=LATER,
        decided_channel="chat",
        reason="because",
    )
    answer_receipt = Receipt(
        status="refused",
        code=code,
        approval_id=ID,
        state=state,
        verdict=state if state in ("approved", "denied") else "",
        decided_by="ana",
        decided_name="Ana",
        decided_at=LATER,
        channel="chat",
        reason="because",
        votes=0,
        needed=3,
    )
    assert machine.settled_receipt(ended) == answer_receipt
    assert machine.objection(ended, answer(), LATER) == answer_receipt
    assert decide(ended, answer(), ANA, LATER) == (ended, answer_receipt)


def test_receipt_of_a_pending_request_is_pending() -> None:
    waiting = Receipt(status="pending", approval_id=ID, state="pending", votes=0, needed=2)
    assert machine.settled_receipt(deadlines.open_request(request(quorum=2), NOW)) == waiting


@table(
    ("fields", "now", "code", "why", "message"),
    ({"edited_args": {}}, NOW, "not_allowed", "edit", ""),
    ({"revision": 1}, NOW, "stale", "", ""),
    ({"revision": None}, NOW, "stale", "", ""),
    ({"revision": 7}, NOW, "stale", "", ""),
    ({"question_hash": "h2"}, NOW, "stale", "", ""),
    ({}, NOW + timedelta(seconds=3600.001), "expired", "", ""),
    (
        {"verdict": "happened"},
        NOW,
        "malformed",
        "",
        "`verdict`: `happened` is only for a call with an unknown outcome",
    ),
    (
        {"verdict": "withdrawn"},
        NOW,
        "malformed",
        "",
        "`verdict`: a withdrawal is not a decision; use `cancel`",
    ),
    ({"result": "paid"}, NOW, "malformed", "", "`result`: only for the verdict `happened`"),
    (
        {"verdict": "denied", "edited_args": {}},
        NOW,
        "malformed",
        "",
        "`edited_args`: only an approval can change the arguments",
    ),
    ({"remember": GrantRequest()}, NOW, "not_allowed", "remember", ""),
)
def test_objection_has_its_code_and_remedy(fields: Any, now: datetime, code: Any, why: Any, message: str) -> None:
    one, _ = decide(deadlines.open_request(request(quorum=2, revision=2), NOW), answer(revision=2), BEN, NOW)
    answer_receipt = Receipt(
        status="refused", code=code, why=why, approval_id=ID, state="pending", votes=1, needed=2, message=message
    )
    assert machine.objection(one, answer(**{"revision": 2} | fields), now) == answer_receipt


@table(
    ("fields", "message"),
    ({"verdict": "happened", "result": "x" * (REASON_CHARS + 1)}, "`result`: at most 2000 characters"),
    ({"edited_args": {}}, "`edited_args`: a call with an unknown outcome runs again unchanged, or not at all"),
    ({"remember": GrantRequest()}, "`remember`: not for a call with an unknown outcome"),
    ({"result": "paid"}, "`result`: only for the verdict `happened`"),
)
def test_unknown_outcome_is_settled_by_its_verdicts_only(fields: Any, message: str) -> None:
    doubt = deadlines.open_request(request(kind="in_doubt", edit="approve", allow_remember=True), NOW)
    assert machine.objection(doubt, answer(**fields), NOW) == Receipt(
        status="refused", code="malformed", approval_id=ID, state="pending", votes=0, needed=1, message=message
    )
    assert machine.objection(doubt, answer("happened", result="x" * REASON_CHARS), NOW) is None


@pytest.mark.row("E56", "Q4")
@table(
    ("code", "expected"),
    ("", "not_allowed"),
    ("not_allowed", "not_allowed"),
    ("self_approval", "self_approval"),
    ("assurance", "assurance"),
    ("unavailable", "unavailable"),
)
def test_refusal_has_the_code_of_the_identity_check(code: Any, expected: Any) -> None:
    waiting = deadlines.open_request(request(), NOW)
    after, receipt = decide(waiting, answer(), Authority(allowed=False, code=code), LATER)
    assert after is waiting
    assert receipt == Receipt(status="refused", code=expected, approval_id=ID, state="pending", votes=0, needed=1)


def test_expired_request_has_the_time_of_its_deadline() -> None:
    waiting = deadlines.open_request(request(), NOW)
    assert deadlines.expire(waiting, LATER) == replace(waiting, state="timed_out", decided_at=LATER)


def test_signature_without_a_time_is_judged_by_now() -> None:
    waiting, late = deadlines.open_request(request(), NOW), NOW + timedelta(hours=2)
    signed = answer(signature="s")
    assert machine.objection(waiting, signed, NOW) is None
    assert machine.objection(waiting, signed, late) is None
    assert decide(waiting, signed, BEN, late)[1].code == "expired"


def test_opened_request_is_pending() -> None:
    assert deadlines.open_request(request(state="lapsed"), NOW).state == "pending"
    assert machine.objection(request(), answer(), LATER) is None


@table(("verdict", "code"), ("handed_on", ""), ("added", "duplicate"))
def test_receipt_of_an_assignment_counts_the_votes_of_the_waiting_request(verdict: str, code: Any) -> None:
    group = ApproverGroup(of=("role:legal",))
    asked = deadlines.open_request(request(quorum=3, groups=(group,)), NOW)
    one, _ = decide(asked, answer(), ANA, LATER)
    assert machine.assignment_receipt(one, verdict, code) == Receipt(
        status="accepted", code=code, approval_id=ID, state="pending", verdict=verdict, votes=1, needed=3, open=(group,)
    )


@table(
    ("verdict", "message"),
    ("retracted", "`verdict`: only the inbox can undo a denial"),
    ("handed_on", "`verdict`: use `reassign` or `add_approver`"),
    ("added", "`verdict`: use `reassign` or `add_approver`"),
)
def test_verdict_with_its_own_entrance_is_no_decision(verdict: str, message: str) -> None:
    receipt = machine.objection(deadlines.open_request(request(), NOW), answer(verdict), NOW)
    assert receipt is not None
    assert (receipt.code, receipt.message) == ("malformed", message)


@table(
    ("verdict", "preview", "why"),
    ("approved", None, "preview"),
    ("approved", PreviewReference(fault="slow"), "preview"),
    ("approved", PreviewReference(sha256="a1"), None),
    ("denied", None, None),
    ("denied", PreviewReference(fault="slow"), None),
    ("denied", PreviewReference(sha256="a1"), None),
)
def test_approval_needs_a_required_preview_and_a_denial_does_not(
    verdict: str, preview: PreviewReference | None, why: str | None
) -> None:
    asked = deadlines.open_request(request(preview=preview, preview_required=True), NOW)
    receipt = machine.objection(asked, answer(verdict), NOW)
    assert (None if receipt is None else receipt.why) == why
    assert receipt is None or receipt.code == "not_allowed"


def test_refusal_has_the_remarks_on_an_edit() -> None:
    asked = deadlines.open_request(request(), NOW)
    assert machine.refusal(asked, "not_allowed", remarks=("too large",)).remarks == ("too large",)


@table(
    ("fields", "final"),
    ({"on_timeout": "deny"}, True),
    ({"on_timeout": "escalate"}, False),
    ({"on_timeout": "escalate", "extended": True}, True),
)
def test_deadline_is_final_unless_it_may_be_extended(fields: dict[str, Any], final: bool) -> None:
    assert deadlines.is_final(request(**fields)) is final


def test_opened_request_has_its_opening_time() -> None:
    assert deadlines.open_request(request(), NOW).opened_at == NOW
