from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tables import table

from signoff.approvals.grant_rules import (
    AgreedGrant,
    agreed_grant,
    agreed_wish,
    check_grant,
    exact_digest,
    grant_id,
    question_of,
    scope_of_call,
    wish_problem,
)
from signoff.approvals.request_state import StoredAnswer
from signoff.contracts.approval import ApprovalRequest, Question, Vote
from signoff.contracts.call import RuleReference
from signoff.contracts.canonical_json import NotCanonical, sha256_hex
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision, GrantRequest
from signoff.contracts.grant import Grant, GrantScope
from signoff.contracts.limits import MAX_REMEMBERED_SECONDS, MAX_REMEMBERED_USES
from signoff.formats.replace import replace
from signoff.testing import a_decision, a_request
from signoff.testing.builders import a_grant, a_question

WISH = GrantRequest(scope="tenant", where="args.amount < 5.0", seconds=60.0, uses=3)


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
EXACT = GrantRequest(scope="session", seconds=60.0, uses=3)
ARGS = {"amount": 4}
TERMS: dict[str, Any] = {
    "args": Content(inline=ARGS),
    "digest": "0123",
    "rule": RuleReference(kind="global", name="large"),
    "policy_hash": "p1",
    "allow_remember": True,
    "timeout": 3600.0,
    "opened_at": NOW,
}


def question(**fields: Any) -> Question:
    return a_question(**TERMS | fields)


def vote(subject: str, remember: GrantRequest | None = WISH, verdict: Any = "approved", minutes: int = 1) -> Vote:
    decision = a_decision(subject=subject, remember=remember, verdict=verdict)
    return Vote(subject=subject, verdict=verdict, at=NOW + timedelta(minutes=minutes), decision=decision)


def settled(state: str, *votes: Vote, **fields: Any) -> ApprovalRequest:
    return a_request(**{"state": state, "votes": votes, "allow_remember": True} | fields)


def by(subject: str, remember: GrantRequest | None = WISH) -> Decision:
    return a_decision(subject=subject, remember=remember)


def test_exact_digest_is_equal_for_the_same_arguments() -> None:
    plain = exact_digest("pay", "d", {"amount": 1, "to": "Ana"})
    assert plain == sha256_hex({"v": 1, "tool": "pay", "definition": "d", "args": {"to": "Ana", "amount": 1.0}})
    others = [("book", "d", {"amount": 1, "to": "Ana"}), ("pay", "e", {"amount": 1, "to": "Ana"}), ("pay", "d", {})]
    assert plain not in {exact_digest(*other) for other in others}
    with pytest.raises(NotCanonical):
        exact_digest("pay", "d", {"amount": float("nan")})


def test_grant_id_is_unique_per_answer() -> None:
    ids = {
        grant_id(*each)
        for each in (("a", 1, "approved"), ("b", 1, "approved"), ("a", 2, "approved"), ("a", 1, "denied"))
    }
    assert len(ids) == 4
    assert all(each.startswith("g") and len(each) == 16 for each in ids)


@table(
    ("fields", "says"),
    ({"seconds": 0.0}, "`remember.seconds`: more than 0, and 2592000 (30 days) at most"),
    ({"seconds": -1.0}, "seconds"),
    ({"seconds": MAX_REMEMBERED_SECONDS + 1}, "seconds"),
    ({"seconds": float("nan")}, "seconds"),
    ({"uses": 0}, "`remember.uses`: 1 to 1000"),
    ({"uses": MAX_REMEMBERED_USES + 1}, "uses"),
)
def test_wish_outside_its_limits_is_refused(fields: dict[str, float], says: str) -> None:
    assert says in wish_problem(replace(WISH, **fields))


@table("fields", {}, {"seconds": MAX_REMEMBERED_SECONDS, "uses": MAX_REMEMBERED_USES}, {"seconds": 0.5, "uses": 1})
def test_wish_within_its_limits_is_accepted(fields: dict[str, float]) -> None:
    assert wish_problem(replace(WISH, **fields)) == ""


def test_quorum_agrees_on_the_narrower_wish() -> None:
    short = replace(WISH, seconds=5.0, uses=9, where=f" {WISH.where} ")
    assert agreed_wish([by("ana")], 1) == WISH
    assert agreed_wish([by("ana"), by("bo", short)], 2) == replace(WISH, seconds=5.0)
    assert agreed_wish([by("bo", short), by("ana")], 2) == replace(short, uses=3)


@table(
    ("decisions", "quorum"),
    ([], 0),
    ([by("ana")], 2),
    ([by("ana"), by("ana")], 2),
    ([by("")], 1),
    ([by("ana", None)], 1),
    ([by("ana"), by("bo", None)], 2),
    ([by("ana"), by("bo", replace(WISH, scope="session"))], 2),
    ([by("ana"), by("bo", replace(WISH, where="true"))], 2),
)
def test_too_few_equal_wishes_make_no_grant(decisions: list[Decision], quorum: int) -> None:
    assert agreed_wish(decisions, quorum) is None


def test_approval_is_remembered_for_all_its_approvers() -> None:
    votes = (vote("ana"), vote("cy", None, "denied"), vote("bo", minutes=2))
    found = agreed_grant(settled("approved", *votes, quorum=2))
    assert found == AgreedGrant("approved", WISH, (votes[0], votes[2]))
    assert found is not None
    assert (found.people, found.since) == (("ana", "bo"), NOW + timedelta(minutes=2))


def test_denial_is_remembered_for_a_person_who_could_deny_alone() -> None:
    votes = (vote("ana", None, "denied"), vote("cy"), vote("bo", verdict="denied", minutes=2))
    assert agreed_grant(settled("denied", *votes, veto=True)) == AgreedGrant("denied", WISH, (votes[2],))


@table(
    "request_",
    settled("approved", vote("ana"), allow_remember=False),
    settled("denied", vote("ana", verdict="denied"), allow_remember=False, veto=True),
    settled("approved", vote("ana"), kind="in_doubt"),
    settled("denied", vote("ana", verdict="denied"), kind="in_doubt", veto=True),
    settled("approved", vote("ana", None)),
    settled("approved", vote("ana"), quorum=2),
    settled("approved", vote("ana"), vote("bo", None), quorum=2),
    settled("denied", vote("ana", verdict="denied"), veto=False),
    settled("denied", vote("ana", None, "denied"), veto=True),
    settled("denied", vote("", verdict="denied"), veto=True),
    settled("denied", vote("ana"), veto=True),
    settled("denied", veto=True),
    settled("pending", vote("ana")),
    settled("timed_out", vote("ana", verdict="denied"), veto=True),
    settled("lapsed", vote("ana")),
)
def test_other_answers_are_not_remembered(request_: ApprovalRequest) -> None:
    assert agreed_grant(request_) is None


def test_grant_scope_is_tool_rule_and_policy_of_the_call() -> None:
    here = GrantScope(
        tenant="main",
        session="s",
        tool="pay",
        definition="d",
        exact=exact_digest("pay", "d", ARGS),
        rule=RuleReference(kind="global", name="large"),
        policy_hash="p1",
    )
    assert scope_of_call(question(), EXACT, ARGS) == here
    assert scope_of_call(question(actor="desk"), EXACT, ARGS) == replace(here, actor="desk")
    everywhere = replace(here, session="", exact="", where="args.amount < 5.0")
    assert scope_of_call(question(), replace(WISH, where=f" {WISH.where}\n"), ARGS) == everywhere
    with pytest.raises(NotCanonical):
        scope_of_call(question(), EXACT, {"amount": float("nan")})


def grant(**fields: Any) -> Grant:
    return a_grant(
        **{
            "id": grant_id("main.s.t.c1.1", 1, "approved"),
            "like": scope_of_call(question(), EXACT, ARGS),
            "created_at": NOW + timedelta(minutes=1),
            "expires_at": NOW + timedelta(minutes=2),
            "uses": 3,
            "uses_left": 3,
        }
        | fields
    )


def checked(made: Grant, asked: Question, *votes: Vote, args: dict[str, Any] = ARGS) -> AgreedGrant | None:
    answers = [StoredAnswer(1, number, each, each.at) for number, each in enumerate(votes, 1)]
    return check_grant(made, asked, answers, NOW + timedelta(hours=2), args)


def test_grant_belongs_to_the_revision_of_its_answer() -> None:
    first, second = question(), question(revision=2)
    assert question_of(grant(), [second, first]) == first
    assert question_of(grant(id=grant_id(first.id, 2, "approved")), [first, second]) == second
    assert question_of(grant(verdict="denied"), [first, second]) is None
    assert question_of(grant(), []) is None


def test_grant_matches_the_stored_answers() -> None:
    decision = vote("ana", EXACT)
    agreed = AgreedGrant("approved", EXACT, (decision,))
    assert checked(grant(), question(), decision) == agreed
    ended = question(ended_at=NOW + timedelta(minutes=5), ended_as="lapsed")
    assert checked(grant(), ended, decision) == agreed
    assert checked(grant(uses=2, expires_at=NOW), question(), decision) == agreed
    assert checked(grant(expires_at=NOW + timedelta(minutes=2, milliseconds=1)), question(), decision) == agreed
    no = vote("ana", EXACT, "denied")
    assert checked(grant(verdict="denied"), question(veto=True), no) == AgreedGrant("denied", EXACT, (no,))


@table(
    "fields",
    {"verdict": "denied"},
    {"requester": "ana"},
    {"people": ("ana", "bo")},
    {"people": ("bo",)},
    {"uses": 4},
    {"expires_at": NOW + timedelta(minutes=2, milliseconds=2)},
    {"like": scope_of_call(question(), EXACT, {"amount": 5})},
    {"like": scope_of_call(question(), WISH, ARGS)},
    {"like": scope_of_call(question(session="r"), EXACT, ARGS)},
    {"like": scope_of_call(question(rule=RuleReference(kind="global", name="small")), EXACT, ARGS)},
)
def test_grant_beyond_its_answers_does_not_count(fields: dict[str, Any]) -> None:
    assert checked(grant(**fields), question(), vote("ana", EXACT)) is None


def test_grant_without_such_answers_does_not_count() -> None:
    assert checked(grant(), question()) is None
    assert checked(grant(), question(), vote("ana", None)) is None
    assert checked(grant(), question(), vote("ana", EXACT), args={"amount": float("nan")}) is None
