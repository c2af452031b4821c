from datetime import UTC, datetime, timedelta
from typing import Any

from tables import table
from turn_fixtures import ApprovalPolicy, Ledger, catalog_of, pay_tool

from signoff.activities.run_rules import (
    SignaturePolicy,
    StoredApproval,
    doubts_of,
    has_happened,
    is_given_up,
    probe_right,
    right_of,
    undone,
    undone_by,
    words_on,
)
from signoff.approvals.digest import doubt_digest, question_hash
from signoff.approvals.machine import vote_of
from signoff.approvals.request_state import StoredAnswer
from signoff.contracts.activity_messages import Authority, Tally
from signoff.contracts.approval import Question, Terms
from signoff.contracts.call import RuleReference, RunRight
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision, Verdict
from signoff.contracts.message import CallPart
from signoff.keys.signatures import Verifier
from signoff.people.directory import FixedDirectory
from signoff.people.eligibility import ApproverSpec
from signoff.people.voter_set import VoterSet
from signoff.policy.compiled_policy import CompiledPolicy
from signoff.registry.gates.pipeline import judge
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.testing.builders import a_call_context, a_decision, a_person, a_question

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
DEVELOPMENT = SignaturePolicy(Verifier(), development=True)
PRODUCTION = SignaturePolicy(Verifier(), development=False)
VOTERS = VoterSet(
    FixedDirectory([a_person("ana"), a_person("bo"), a_person("eve", roles=())]),
    (ApproverSpec("main", Terms(approvers=("role:approvers",)), "guest", False),),
    NOW,
)
DIGEST = "d"
SIGNED: dict[str, Any] = {"key_id": "k", "signature": "forged"}


def policy_of(*, accept_unsigned: bool = False) -> CompiledPolicy:
    return catalog_of([pay_tool(Ledger(), ApprovalPolicy(accept_unsigned=accept_unsigned))]).policy("pay")


def doubt(revision: int, number: int = 1, **fields: Any) -> Question:
    given: dict[str, Any] = {
        "kind": "in_doubt",
        "doubt_of": number,
        "digest": doubt_digest(DIGEST, number),
        "opened_at": NOW,
    }
    return a_question(revision=revision, **given | fields)


def word(question: Question, subject: str, verdict: Verdict = "approved", **fields: Any) -> Decision:
    about: dict[str, Any] = {"revision": question.revision, "question_hash": question_hash(question)}
    return a_decision(verdict=verdict, subject=subject, **about | fields)


def rows_of(
    *questions: Question, answered: tuple[tuple[Question, Decision], ...] = (), after: float = 60.0
) -> ApprovalRows:
    """`after` is in seconds since the question."""
    answers = tuple(
        StoredAnswer(
            question.revision,
            number,
            vote_of(decision, Authority(allowed=True, subject=decision.subject, assurance="session"), NOW),
            NOW,
        )
        for number, (question, decision) in enumerate(answered, 1)
    )
    return ApprovalRows(questions, answers, NOW + timedelta(seconds=after))


def test_attempt_is_undone_by_answers_to_its_last_question() -> None:
    first, second, other = doubt(1), doubt(2), doubt(3, number=2)
    given = word(second, "ana")
    rows = rows_of(
        first, second, other, answered=((first, word(first, "bo")), (second, given), (other, word(other, "bo")))
    )
    assert undone_by(DIGEST, rows, 1) == (given,)
    assert undone_by(DIGEST, rows_of(first, second, answered=((first, word(first, "bo")),)), 1) == ()
    assert undone_by(DIGEST, rows, 3) == ()
    # The same attempt, with arguments edited since.
    changed = doubt(4, digest=doubt_digest("changed", 1))
    assert undone_by(DIGEST, rows_of(changed, answered=((changed, word(changed, "ana")),)), 1) == ()
    assert undone_by(DIGEST, None, 1) == ()
    assert doubts_of(rows) == (first, second, other)
    assert doubts_of(rows_of(a_question(), first)) == (first,)
    assert doubts_of(None) == ()


@table("verdict", "happened", "denied")
@table("asked_again", True, False)
def test_attempt_that_happened_or_was_denied_is_never_undone(*, verdict: Verdict, asked_again: bool) -> None:
    first, second = doubt(1), doubt(2)
    given = [(first, word(first, "bo", verdict))] + [(second, word(second, "ana"))] * asked_again
    rows = rows_of(first, *[second] * asked_again, answered=tuple(given))
    assert undone_by(DIGEST, rows, 1) == ()


def test_too_few_timely_answers_do_not_undo_an_attempt() -> None:
    asked = doubt(1, quorum=2, timeout=60.0)
    given = ((asked, word(asked, "ana")),)
    assert len(undone_by(DIGEST, rows_of(asked, answered=given, after=59), 1)) == 1
    assert undone_by(DIGEST, rows_of(asked, answered=given, after=61), 1) == ()


def test_approval_of_the_call_does_not_count_for_an_attempt() -> None:
    asked, call = doubt(1), a_question(revision=2)
    for wrong in (
        word(asked, "ana", question_hash=question_hash(call)),
        word(asked, "ana", approval_id="main.s.t.c2.1"),
    ):
        assert words_on(DIGEST, rows_of(asked, call, answered=((asked, wrong),)), 1) == ()
    assert words_on(DIGEST, rows_of(asked), 1) == ()
    again = doubt(3)
    given = (asked, word(asked, "ana")), (again, word(again, "bo"))
    assert words_on(DIGEST, rows_of(asked, again, answered=given), 1) == (given[0][1], given[1][1])


def test_giving_up_an_attempt_needs_the_quorum_of_the_question() -> None:
    asked, policy = doubt(1), policy_of()
    ana, bo, eve = (word(asked, name) for name in ("ana", "bo", "eve"))
    assert is_given_up((ana, bo), 2, policy, DEVELOPMENT, VOTERS)
    assert not is_given_up((ana, ana), 2, policy, DEVELOPMENT, VOTERS)
    assert not is_given_up((ana, eve), 2, policy, DEVELOPMENT, VOTERS)
    assert not is_given_up((word(asked, ""),), 1, policy, DEVELOPMENT, VOTERS)
    for verdict in ("happened", "denied"):
        assert not is_given_up((ana, bo, word(asked, "ana", verdict)), 1, policy, DEVELOPMENT, VOTERS)
    # A decision without a subject never counts.
    assert is_given_up((ana, word(asked, "", "happened")), 1, policy, DEVELOPMENT, VOTERS)
    assert not is_given_up((ana, bo), 1, policy, PRODUCTION, VOTERS)
    assert is_given_up((ana,), 1, policy_of(accept_unsigned=True), PRODUCTION, VOTERS)


def test_attempt_happened_if_one_entitled_person_confirms_it() -> None:
    asked, policy = doubt(1), policy_of()
    given = word(asked, "ana", "happened")
    assert has_happened(given, (word(asked, "bo"), given), policy, DEVELOPMENT, VOTERS)
    assert not has_happened(given, (word(asked, "bo"),), policy, DEVELOPMENT, VOTERS)
    assert not has_happened(given, (given,), policy, PRODUCTION, VOTERS)
    for other in (word(asked, "ana"), word(asked, "ana", "denied"), word(asked, "eve", "happened")):
        assert not has_happened(other, (other, given), policy, DEVELOPMENT, VOTERS)


def test_right_to_run_holds_only_stored_and_present_facts() -> None:
    question = a_question(revision=2, quorum=2, rule=RuleReference(kind="global", name="large"), policy_hash="p")
    given = (word(question, "ana"), word(question, "bo"))
    found = judge(
        catalog_of([pay_tool(Ledger())]),
        a_call_context(),
        CallPart(call="c1.1", tool="pay", args=Content(inline={"amount": 1, "to": "Ana"})),
        {"amount": 1, "to": "Ana"},
        Tally(),
    )
    assert right_of(found, StoredApproval(question, "h", given)) == RunRight(2, question.rule, "p", decisions=given)
    assert found.verdict is not None
    ruled = right_of(found, None)
    assert ruled == RunRight(rule=found.verdict.rule, policy_hash=found.verdict.policy_hash)
    assert ruled.revision is None
    assert right_of(found.decide(grant="g")._replace(verdict=None), None) == RunRight(grant="g")


def test_probe_receives_only_verified_answers() -> None:
    question = a_question()
    ana, nobody, forged = word(question, "ana"), word(question, ""), word(question, "bo", **SIGNED)
    approval = StoredApproval(question, "h", (ana, nobody, forged))
    assert probe_right(approval, policy_of(), DEVELOPMENT) == RunRight(1, decisions=(ana,))
    assert probe_right(approval, policy_of(), PRODUCTION) == RunRight(1)
    assert probe_right(approval, policy_of(accept_unsigned=True), PRODUCTION).decisions == (ana,)
    assert probe_right(None, policy_of(), DEVELOPMENT) == RunRight()


def test_audit_log_holds_the_decisions_that_undid_earlier_attempts() -> None:
    first, second, third = doubt(1), doubt(2, number=2), doubt(3, number=3)
    given = [word(each, "ana") for each in (first, second, third)]
    more = ((second, word(second, "bo", "happened")), (first, word(first, "", reason="x")))
    rows = rows_of(
        a_question(revision=4), third, second, first, answered=(*zip((first, second, third), given, strict=True), *more)
    )
    assert undone(DIGEST, rows, 3, policy_of(), DEVELOPMENT) == (given[0], given[1])
    assert undone(DIGEST, rows, 3, policy_of(), PRODUCTION) == ()
    assert undone(DIGEST, None, 3, policy_of(), DEVELOPMENT) == ()
