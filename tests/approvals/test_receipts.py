from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tables import table

from signoff.approvals import deadlines, machine
from signoff.approvals.approval_book import ApprovalBook, malformed_receipt, read_decision, read_withdrawal
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest, ApproverGroup, Vote
from signoff.contracts.decision import Decision, GrantRequest
from signoff.contracts.limits import DECISION_BYTES, REASON_CHARS, REFUSALS_KEPT
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


def book(**fields: Any) -> ApprovalBook:
    made = ApprovalBook()
    made.open(deadlines.open_request(request(**fields), NOW), NOW)
    return made


# The machine


@pytest.mark.row("B73")
def test_vote_keeps_person_channel_and_time() -> None:
    after, receipt = machine.decide(deadlines.open_request(request(quorum=1), NOW), answer(), ANA, LATER)
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
    assert machine.settled_receipt(machine.cancel(asked, "guest", "", LATER)).open == ()


def test_refusal_has_the_note_of_the_identity_check() -> None:
    asked = deadlines.open_request(request(), NOW)
    receipt = machine.examine(asked, answer(), Authority(allowed=False, code="assurance", note="sign in again"), LATER)
    assert receipt is not None
    assert (receipt.code, receipt.message) == ("assurance", "sign in again")


def test_counted_vote_reports_the_missing_approvals() -> None:
    one, first = machine.decide(deadlines.open_request(request(quorum=2), NOW), answer(), ANA, LATER)
    counted = Receipt(status="counted", code="", approval_id=ID, state="pending", votes=1, needed=2)
    assert first == counted
    same, again = machine.decide(one, answer(), ANA, LATER)
    assert same is one
    assert again == replace(counted, code="duplicate")
    both, done = machine.decide(one, answer(), BEN, LATER)
    assert (done.status, done.votes, done.needed, done.decided_by) == ("accepted", 2, 2, "ben")
    assert [vote.subject for vote in both.votes] == ["ana", "ben"]


def test_changed_answer_is_one_vote() -> None:
    one, _ = machine.decide(deadlines.open_request(request(quorum=2, veto=False), NOW), answer("denied"), ANA, NOW)
    two, receipt = machine.decide(one, answer(), ANA, LATER)
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
    assert machine.decide(ended, answer(), ANA, LATER) == (ended, answer_receipt)


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
    one, _ = machine.decide(deadlines.open_request(request(quorum=2, revision=2), NOW), answer(revision=2), BEN, NOW)
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
    after, receipt = machine.decide(waiting, answer(), Authority(allowed=False, code=code), LATER)
    assert after is waiting
    assert receipt == Receipt(status="refused", code=expected, approval_id=ID, state="pending", votes=0, needed=1)


def test_timers_and_withdrawals_are_dated() -> None:
    waiting = deadlines.open_request(request(), NOW)
    assert deadlines.expire(waiting, LATER) == replace(waiting, state="timed_out", decided_at=LATER)
    assert machine.cancel(waiting, "guest", "enough", LATER) == replace(
        waiting, state="cancelled", decided_by="guest", decided_at=LATER, reason="enough"
    )


def test_signature_without_a_time_is_judged_by_now() -> None:
    waiting, late = deadlines.open_request(request(), NOW), NOW + timedelta(hours=2)
    signed = answer(signature="s")
    assert machine.objection(waiting, signed, NOW) is None
    assert machine.objection(waiting, signed, late) is None
    assert machine.decide(waiting, signed, BEN, late)[1].code == "expired"


def test_opened_request_is_pending() -> None:
    assert deadlines.open_request(request(state="lapsed"), NOW).state == "pending"
    assert machine.objection(request(), answer(), LATER) is None


# The book


UNKNOWN = Receipt(status="refused", code="unknown", approval_id="x.y", message="no such request in this turn")


def test_book_lists_all_and_pending_requests() -> None:
    both = book()
    second = both.open(deadlines.open_request(request(OTHER), LATER), LATER)
    first = both.get(ID)
    assert (first.opened_at, second.opened_at, both.get(OTHER)) == (NOW, LATER, second)
    assert both.all() == both.pending() == (first, second)
    assert both.waits(ID)
    assert both.waits(OTHER)
    both.apply_due_event(ID, deadlines.next_event(first), LATER)
    assert both.pending() == (second,)
    assert [each.state for each in both.all()] == ["timed_out", "pending"]
    assert not both.waits(ID)
    assert not both.waits("x.y")
    assert both.get("x.y") is None


def test_later_revision_replaces_the_earlier_one() -> None:
    made = book()
    made.open(deadlines.open_request(request(revision=2), LATER), LATER)
    assert [(each.revision, each.opened_at) for each in made.all()] == [(2, LATER)]


def test_unknown_request_is_refused_by_every_method() -> None:
    made, wrong = book(), answer(approval_id="x.y")
    assert made.precheck(wrong, NOW) == UNKNOWN
    assert made.settle(wrong, ANA, NOW) == UNKNOWN
    assert made.cancel("x.y", "guest", "", NOW) == UNKNOWN
    assert made.receipt("x.y") == UNKNOWN
    assert list(made.refusals) == [UNKNOWN] * 3
    assert made.refused == 3


def test_precheck_refuses_without_the_directory() -> None:
    made = book()
    assert made.precheck(answer(), NOW) is None
    assert made.refused == 0
    stale = made.precheck(answer(revision=9), NOW)
    assert stale.code == "stale"
    assert list(made.refusals) == [stale]


def test_answer_is_settled_once_per_delivery() -> None:
    made = book(quorum=3)
    posted = answer(delivery_id="d1")
    nobody = Authority(allowed=False, code="unavailable")
    assert made.settle(posted, nobody, NOW).code == "unavailable"
    first = made.settle(posted, ANA, NOW)
    assert (first.status, first.code) == ("counted", "")
    again = replace(first, code="duplicate")
    assert made.precheck(posted, NOW) == again
    assert made.settle(posted, BEN, NOW) == again
    assert len(made.get(ID).votes) == 1
    assert made.precheck(answer(delivery_id="d1", revision=None), NOW) == again
    assert made.precheck(answer(delivery_id="d2"), NOW) is None


def test_answers_without_a_delivery_id_are_separate() -> None:
    made = book(quorum=2)
    assert made.settle(answer(), ANA, NOW).status == "counted"
    assert made.precheck(answer(), NOW) is None
    assert made.settle(answer(), BEN, NOW).status == "accepted"


def test_one_delivery_about_two_requests_is_two_answers() -> None:
    made = book()
    made.open(request(OTHER), NOW)
    made.settle(answer(delivery_id="d1"), ANA, NOW)
    assert made.settle(answer(delivery_id="d1", approval_id=OTHER), ANA, NOW).status == "accepted"
    made.open(request(revision=2), NOW)
    assert made.settle(answer(delivery_id="d1", revision=2), ANA, NOW).code == ""


def test_withdrawal_is_accepted_once() -> None:
    made = book()
    done = made.cancel(ID, "guest", "enough", LATER)
    assert done == Receipt(
        status="accepted",
        code="",
        approval_id=ID,
        state="cancelled",
        decided_by="guest",
        decided_at=LATER,
        reason="enough",
        votes=0,
        needed=1,
    )
    assert made.get(ID).state == "cancelled"
    assert made.refused == 0
    late = made.cancel(ID, "guest", "", LATER)
    assert (late.status, late.code, late.reason) == ("refused", "cancelled", "enough")
    assert list(made.refusals) == [late]


def test_lapsed_approval_is_reported_as_stale() -> None:
    made = book()
    made.settle(answer(), ANA, NOW)
    assert made.receipt(ID).code == "already_decided"
    assert made.lapse(ID, NOW).state == "lapsed"
    assert made.get(ID).state == "lapsed"
    assert (made.receipt(ID).code, made.receipt(ID).decided_by) == ("stale", "ana")
    assert made.refused == 0


def test_fifty_refusals_are_kept_and_all_are_counted() -> None:
    made = ApprovalBook()
    assert (made.refused, list(made.refusals), made.all()) == (0, [], ())
    for number in range(REFUSALS_KEPT + 2):
        found = malformed_receipt(str(number))
        assert made.reject(found) is found
    assert made.refused == REFUSALS_KEPT + 2
    assert [each.message for each in made.refusals] == [str(n) for n in range(2, REFUSALS_KEPT + 2)]


# Input


ONE = "a decision is one JSON object"


def _deep() -> dict[str, Any]:
    body: dict[str, Any] = {}
    for _ in range(100_000):
        body = {"a": body}
    return body


@table(
    ("envelopes", "message", "named"),
    ((), ONE, ""),
    (({}, {}), ONE, ""),
    (("x",), ONE, ""),
    ((None,), ONE, ""),
    (([],), ONE, ""),
    ((b"yes",), ONE, ""),
    ((7,), ONE, ""),
    (({"x": float("nan")},), ONE, ""),
    (({"x": object()},), ONE, ""),
    (({"x": "\ud800"},), ONE, ""),
    ((_deep(),), ONE, ""),
    (({"x": "é" * (DECISION_BYTES // 2)},), "a decision is at most 65536 bytes", ""),
    (({"approval_id": ID},), "`verdict`: field required", ID),
    (({"approval_id": 7, "verdict": "approved"},), "`approval_id`: input should be a valid string", ""),
    (
        ({"approval_id": ID, "verdict": "yes"},),
        "`verdict`: input should be 'approved', 'denied', 'happened', 'withdrawn' or 'retracted'",
        ID,
    ),
    (
        ({"approval_id": ID, "verdict": "denied", "edited_args": []},),
        "`edited_args`: input should be a valid dictionary",
        ID,
    ),
    (
        ({"approval_id": ID, "verdict": "denied", "reason": "x" * (REASON_CHARS + 1)},),
        "`reason`: at most 2000 characters",
        ID,
    ),
    (
        ({"approval_id": ID, "verdict": "denied", "received_at": "2026-01-01T00:00:00"},),
        "`received_at`: needs a time zone",
        ID,
    ),
    (
        ({"approval_id": ID, "verdict": "approved", "edited_arg": {"amount": 5}},),
        "'edited_arg': a decision has no such field",
        ID,
    ),
    (
        ({"approval_id": ID, "verdict": "approved", "remember": {"were": "args.amount < 5"}},),
        "'remember.were': a decision has no such field",
        ID,
    ),
    (({"approval_id": ID, "x" * 999: 1},), f"{'x' * 64!r}: a decision has no such field", ID),
    (({"approval_id": ID, "": 1},), "'(empty)': a decision has no such field", ID),
)
def test_invalid_decision_is_refused_with_its_error(envelopes: Any, message: str, named: str) -> None:
    answer_receipt = Receipt(status="refused", code="malformed", approval_id=named, message=message)
    assert read_decision(envelopes) == answer_receipt


@table("body", {"approval_id": ID}, {"approval_id": ID, "verdict": "withdrawn", "reason": "sold"})
def test_withdrawal_needs_only_the_request_id(body: dict[str, Any]) -> None:
    assert read_withdrawal((body,)) == Decision.model_validate({"verdict": "withdrawn"} | body)


@table(
    ("envelopes", "message", "named"),
    ((), ONE, ""),
    (({"approval_id": ID}, {}), ONE, ""),
    (({"verdict": "withdrawn"},), "`approval_id`: field required", ""),
    (({"approval_id": ID, "verdict": "denied"},), "`verdict`: must be `withdrawn`", ID),
    (({"approval_id": ID, "reason": "x" * (REASON_CHARS + 1)},), "`reason`: at most 2000 characters", ID),
)
def test_invalid_withdrawal_is_refused_with_its_error(envelopes: Any, message: str, named: str) -> None:
    answer_receipt = Receipt(status="refused", code="malformed", approval_id=named, message=message)
    assert read_withdrawal(envelopes) == answer_receipt


def test_limits_of_a_decision_are_inclusive() -> None:
    body = {"approval_id": ID, "verdict": "denied", "reason": "x" * REASON_CHARS, "revision": "3"}
    read = read_decision(({**body, "received_at": "2026-01-01T12:00:00Z"},))
    assert isinstance(read, Decision)
    assert (read.revision, read.received_at, len(read.reason)) == (3, NOW, REASON_CHARS)
    shell = len('{"approval_id": "", "verdict": "denied", "result": ""}') + len(ID)
    full = {"approval_id": ID, "verdict": "denied", "result": "é" * ((DECISION_BYTES - shell) // 2)}
    full["result"] += "x" * ((DECISION_BYTES - shell) % 2)
    assert isinstance(read_decision((full,)), Decision)
    assert isinstance(read_decision(({**full, "result": full["result"] + "y"},)), Receipt)
