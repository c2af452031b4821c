from datetime import UTC, datetime
from typing import Any

from signoff.approvals.identity import identify_task, withdrawal_task
from signoff.contracts.activity_messages import IdentifyTask
from signoff.contracts.approval import ApproverGroup, Vote
from signoff.contracts.person import Principal
from signoff.testing import a_decision, a_request

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
ANSWER = a_decision(subject="cy")
MANY, ONE = ApproverGroup(of=("role:legal", "user:ana"), quorum=1), ApproverGroup(of=("role:cfo", "user:ana"), quorum=2)
TERMS: dict[str, Any] = {
    "tenant": "acme",
    "approvers": ("role:legal", "role:cfo", "user:ana"),
    "requester": Principal(user="guest"),
    "allow_self": True,
    "min_assurance": "mfa",
    "accept_unsigned": True,
    "proposers": ("desk",),
}


def vote(subject: str, **fields: Any) -> Vote:
    return Vote(**{"subject": subject, "verdict": "approved", "at": AT, "decision": a_decision()} | fields)


def test_identity_check_contains_the_terms_of_the_request() -> None:
    assert identify_task(ANSWER, a_request(**TERMS)) == IdentifyTask(
        decision=ANSWER,
        tenant="acme",
        approvers=("role:legal", "role:cfo", "user:ana"),
        requester="guest",
        allow_self=True,
        min_assurance="mfa",
        accept_unsigned=True,
        proposers=("desk",),
    )


def test_identity_check_contains_the_requesters_person_id() -> None:
    known = a_request(**TERMS | {"requester": Principal(user="guest", person_id="u7")})
    assert identify_task(ANSWER, known).requester_person == "u7"


def test_identity_check_contains_voters_and_incomplete_groups() -> None:
    votes = (
        vote("ana@example.org", person_id="ana", entries=("role:legal",)),
        vote("bo", on_behalf="dan", verdict="denied"),
        vote("ana", entries=("role:legal",)),
    )
    task = identify_task(ANSWER, a_request(**TERMS, groups=(MANY, ONE), quorum=3, votes=votes))
    assert task.seats == ("ana", "dan")
    assert task.groups == (MANY, ONE)
    assert task.wanted == ("role:cfo", "user:ana")
    nobody = identify_task(ANSWER, a_request(**TERMS, groups=(MANY, ONE), quorum=3))
    assert (nobody.seats, nobody.wanted) == ((), ("role:legal", "user:ana", "role:cfo"))


def test_requester_approver_and_operator_may_withdraw() -> None:
    asked = a_request(**TERMS | {"allow_self": False}, groups=(MANY, ONE), votes=(vote("ana"),))
    assert withdrawal_task(ANSWER, asked) == IdentifyTask(
        decision=ANSWER,
        tenant="acme",
        approvers=("role:legal", "role:cfo", "user:ana", "user:guest", "role:admin"),
        requester="guest",
        allow_self=True,
        min_assurance="none",
        accept_unsigned=False,
    )
