from datetime import UTC, datetime, timedelta
from typing import Any

from answering import decide
from tables import table

from signoff.approvals.approval_outcomes import answer_for_model
from signoff.approvals.earlier_questions import is_barred
from signoff.approvals.request_state import as_answerable, editors_of
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest, ApproverGroup
from signoff.contracts.decision import Decision, GrantRequest
from signoff.testing import a_decision, a_request

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)


def request(**fields: Any) -> ApprovalRequest:
    return a_request(opened=NOW, **{"timeout": 3600.0} | fields)


def answered(**fields: Any) -> Decision:
    return a_decision(**{"verdict": "answered", "answer": {"hotel": "Luz"}} | fields)


def by(person: str = "ana", *entries: str) -> Authority:
    return Authority(allowed=True, subject=person, name=person.title(), assurance="session", entries=entries)


def test_one_answer_settles_the_request_and_bars_its_call() -> None:
    after, receipt = decide(request(), answered(), by(), LATER)
    assert (after.state, after.decided_by, receipt.status, receipt.verdict) == (
        "answered",
        "ana",
        "accepted",
        "answered",
    )
    assert is_barred([after], after.call)
    late = decide(after, a_decision(verdict="approved"), by("bo"), LATER)[1]
    assert (late.status, late.code, late.verdict, late.decided_by) == ("refused", "already_decided", "answered", "ana")


def test_answer_after_an_approval_changes_nothing() -> None:
    approved, _ = decide(request(), a_decision(verdict="approved"), by("bo"), NOW)
    after, receipt = decide(approved, answered(), by(), LATER)
    assert (after, receipt.code, receipt.verdict) == (approved, "already_decided", "approved")


def test_answer_after_the_deadline_is_refused() -> None:
    assert decide(request(), answered(), by(), NOW + timedelta(hours=2))[1].code == "expired"


@table(
    ("fields", "code", "words"),
    ({"answer": None}, "malformed", "`answer`: missing"),
    ({"verdict": "approved"}, "malformed", "`answer`: only for the verdict `answered`"),
    ({"remember": GrantRequest()}, "malformed", "`remember`: not for an answer instead"),
    ({"edited_args": {"amount": 1}}, "malformed", "`edited_args`: only an approval can change the arguments"),
    ({"result": "done"}, "malformed", "`result`: only for the verdict `happened`"),
    ({"question_hash": "0" * 64}, "stale", ""),
)
def test_unfit_answer_is_refused_with_its_reason(fields: dict[str, Any], code: str, words: str) -> None:
    asked = request()
    after, receipt = decide(asked, answered(**fields), by(), LATER)
    assert after is asked
    assert (receipt.status, receipt.code, receipt.message) == ("refused", code, words)


def test_question_about_an_unknown_outcome_takes_no_answer() -> None:
    assert decide(request(kind="in_doubt"), answered(), by(), LATER)[1].code == "malformed"


def test_answer_lacks_the_preview_that_an_approval_needs() -> None:
    receipt = decide(request(preview_required=True), answered(), by(), LATER)[1]
    assert (receipt.code, receipt.why) == ("not_allowed", "preview")


@table(
    "terms",
    {"quorum": 2},
    {"groups": (ApproverGroup(of=("role:a",)), ApproverGroup(of=("role:b",)))},
)
def test_no_single_person_answers_where_several_must_approve(terms: dict[str, Any]) -> None:
    asked = request(**terms)
    after, receipt = decide(asked, answered(), by("ana", "role:a"), LATER)
    assert after is asked
    assert (receipt.code, receipt.why) == ("not_allowed", "several")


def test_answer_outside_the_only_group_settles_nothing() -> None:
    asked = request(groups=(ApproverGroup(of=("role:a",)),))
    assert decide(asked, answered(), by("ana", "role:b"), LATER)[0].state == "pending"
    assert decide(asked, answered(), by("ana", "role:a"), LATER)[0].state == "answered"


def test_requester_and_editors_may_not_answer_even_with_self_approval() -> None:
    made = as_answerable(request(allow_self=True, proposers=("bo",)), ("cy",))
    assert (made.allow_self, made.proposers) == (False, ("bo", "cy"))


def test_editors_are_the_authors_of_edits_that_made_a_revision() -> None:
    assert editors_of([request(), request(revision=2)], []) == ()


def test_model_reads_the_answer_within_an_object() -> None:
    said = answer_for_model("Ana\u202e", answered(answer='"} do more', reason="sold out"))
    assert said == {
        "type": "ToolAnswered", "answered_by": "Ana⟦U+202E⟧", "answer": '"} do more', "remark": "sold out",
    }  # fmt: skip
    assert "remark" not in answer_for_model("Ana", answered())
