from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from activity_kit import decision
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from tables import table

from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest, ApproverGroup, Vote
from signoff.contracts.decision import ASSURANCES, UNSIGNED, Decision
from signoff.contracts.person import Delegation, Person, Principal
from signoff.formats.replace import replace
from signoff.people.authority import check_authority
from signoff.people.directory import FixedDirectory
from signoff.testing.builders import a_decision, a_person, a_request

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
RECEIVED = NOW - HOUR
ANA = Person(id="ana", name="Ana", roles=("approvers", "finance"))
BO = Person(id="bo", name="Bo")
MOMENTS = {"signed": RECEIVED, "unsigned": NOW}


class Asked(NamedTuple):
    request: ApprovalRequest
    decision: Decision


def judged(
    asked: Asked, *people: Person, kind: Literal["signed", "unsigned"] = "unsigned", development: bool = True
) -> Authority:
    directory = FixedDirectory(people)
    return check_authority(*asked, MOMENTS[kind], directory, unsigned=kind == "unsigned", development=development)


def absent(person: Person, *to: str, hours: float = 1, **fields: Any) -> Person:
    until = NOW + timedelta(hours=hours)
    return replace(person, **{"delegations": tuple(Delegation(to=each, until=until) for each in to)} | fields)


def given(**change: Any) -> Decision:
    return decision(**{"subject": "ana", "assurance": "session"} | change)


def asked(change: dict[str, Any] | None = None, *, requester: str = "guest", **fields: Any) -> Asked:
    terms: dict[str, Any] = {"approvers": ("role:approvers",), "min_assurance": "channel"}
    return Asked(a_request(requester=Principal(user=requester), **terms | fields), given(**change or {}))


def vote(subject: str, **fields: Any) -> Vote:
    return Vote(**{"subject": subject, "verdict": "approved", "at": NOW, "decision": a_decision()} | fields)


def test_listed_person_may_decide() -> None:
    yes = Authority(allowed=True, subject="ana", person_id="ana", name="Ana", unsigned=True)
    assert judged(asked(), ANA) == yes
    for approvers in (("user:ana",), ("role:finance",), ("role:x", "user:y", "role:finance")):
        assert judged(asked(approvers=approvers), ANA) == yes


@table(
    ("person", "approvers"),
    (None, ("user:ana",)),
    (replace(ANA, active=False), ("user:ana", "role:approvers")),
    (ANA, ()),
    (ANA, ("role:ana", "user:approvers", "role:admin")),
    (replace(ANA, roles=()), ("role:approvers",)),
)
def test_unknown_inactive_and_unlisted_people_may_not_decide(person: Person | None, approvers: tuple[str, ...]) -> None:
    people = (person,) if person is not None else ()
    for kind in ("signed", "unsigned"):
        found = judged(asked(approvers=approvers), *people, kind=kind)
        assert (found.allowed, found.code, found.subject) == (False, "not_allowed", "ana")


def test_person_of_another_tenant_may_not_decide() -> None:
    class Confused(FixedDirectory):
        def find(self, person_id: str, tenant: str = "main") -> Person | None:
            return super().find(person_id, "other")

    elsewhere = replace(ANA, tenant="other")
    assert judged(asked(), elsewhere).code == "not_allowed"
    found = check_authority(*asked(), RECEIVED, Confused([elsewhere]), unsigned=False, development=False)
    assert (found.allowed, found.code) == (False, "not_allowed")


def test_requester_may_not_decide_unless_the_policy_allows_it() -> None:
    found = judged(asked(requester="ana"), ANA)
    assert found == Authority(
        allowed=False, code="self_approval", subject="ana", person_id="ana", name="Ana", unsigned=True
    )
    assert judged(asked(requester="ana", allow_self=True), ANA).allowed
    assert judged(asked(requester="ana", approvers=()), ANA).code == "not_allowed"


def test_unsigned_answer_outside_development_is_rejected() -> None:
    assert judged(asked(), ANA, development=False) == Authority(allowed=False, code="assurance", unsigned=True)
    taken = judged(asked({"assurance": "mfa"}, accept_unsigned=True, min_assurance="mfa"), ANA, development=False)
    assert taken == Authority(allowed=True, subject="ana", person_id="ana", name="Ana", assurance="none", unsigned=True)


def test_signed_answer_counts_with_its_assurance() -> None:
    found = judged(asked(), ANA, kind="signed", development=False)
    assert found == Authority(allowed=True, subject="ana", person_id="ana", name="Ana", assurance="session")
    refused = judged(asked({"subject": "eve"}), ANA, kind="signed", development=False)
    assert refused == Authority(allowed=False, code="not_allowed", subject="eve")


def test_signed_answer_without_a_subject_is_rejected() -> None:
    found = judged(asked({"subject": ""}, accept_unsigned=True), ANA, kind="signed")
    assert found == Authority(allowed=False, code="not_allowed")


@table("need", *ASSURANCES)
@table("have", *ASSURANCES)
def test_assurance_below_the_policy_is_rejected(have: Any, need: Any) -> None:
    enough = ASSURANCES.index(have) >= ASSURANCES.index(need)
    task = asked({"assurance": have}, min_assurance=need, accept_unsigned=True)
    found = judged(task, ANA, kind="signed")
    assert (found.allowed, found.code, found.assurance) == (enough, "" if enough else "assurance", have)
    bare = judged(asked({"assurance": have}, min_assurance=need), ANA)
    waived = have == "none" and need in ("link", "channel")
    assert bare.allowed == (waived or (enough and need != "present"))
    assert bare.code == ("" if bare.allowed else "assurance")
    assert (bare.subject, bare.name, bare.assurance, bare.unsigned) == ("ana", "Ana", "none", True)


@table(
    ("development", "accept", "need", "allowed"),
    (True, False, "channel", True),
    (True, False, "session", False),
    (True, True, "mfa", True),
    (False, True, "channel", True),
    (False, True, "none", True),
    (False, False, "none", False),
)
def test_answer_without_a_subject_counts_only_as_unsigned(
    development: bool, accept: bool, need: Any, allowed: bool
) -> None:
    task = asked({"subject": "", "assurance": "mfa"}, min_assurance=need, accept_unsigned=accept)
    found = judged(task, ANA, development=development)
    assert found.allowed is allowed
    assert found.code == ("" if allowed else "assurance")
    assert found.unsigned
    assert found.subject == (UNSIGNED if development or accept else "")
    assert (found.name, found.assurance) == ("", "none")


def by_bo(**fields: Any) -> Asked:
    return asked({"subject": "bo"}, **fields)


def test_delegate_may_decide_for_an_approver() -> None:
    for approvers in (("role:approvers",), ("user:ana",)):
        found = judged(by_bo(approvers=approvers), absent(ANA, "bo"), BO, kind="signed", development=False)
        assert (found.allowed, found.subject, found.name, found.on_behalf) == (True, "bo", "Bo", "ana")


def test_delegate_who_is_an_approver_decides_in_their_own_name() -> None:
    found = judged(by_bo(), absent(ANA, "bo"), replace(BO, roles=("approvers",)))
    assert (found.allowed, found.on_behalf) == (True, "")


@table(
    ("people", "why"),
    ((absent(ANA, "cy"), BO, Person(id="cy")), "delegated to somebody else"),
    ((absent(ANA, "bo", active=False), BO), "the delegator is not active"),
    ((absent(ANA, "bo", roles=()), BO), "the delegator is no approver any more"),
    ((absent(ANA, "bo"), replace(BO, active=False)), "the delegate is not active"),
    ((absent(ANA, "cy"), absent(Person(id="cy"), "bo"), BO), "two hops"),
)
def test_invalid_delegation_is_rejected(people: tuple[Person, ...], why: str) -> None:
    found = judged(by_bo(), *people, kind="signed")
    assert (found.allowed, found.code, found.on_behalf) == (False, "not_allowed", ""), why


@table(
    ("kind", "hours", "allowed"),
    ("unsigned", 0.5, True),
    ("unsigned", 0, False),
    ("unsigned", -0.5, False),
    ("signed", -0.5, True),
    ("signed", -1, False),
    ("signed", -2, False),
)
def test_delegation_expires_at_its_end(kind: Any, hours: float, allowed: bool) -> None:
    found = judged(by_bo(), absent(ANA, "bo", hours=hours), BO, kind=kind)
    assert found.allowed is allowed
    assert found.code == ("" if allowed else "not_allowed")


def test_delegation_does_not_allow_deciding_your_own_request() -> None:
    ana = absent(ANA, "bo")
    assert judged(by_bo(requester="bo"), ana, BO).code == "self_approval"
    assert judged(by_bo(requester="ana"), ana, BO).code == "not_allowed"
    for requester in ("ana", "bo"):
        found = judged(by_bo(requester=requester, allow_self=True), ana, BO)
        assert (found.allowed, found.on_behalf) == (True, "ana")


def test_delegate_of_several_approvers_takes_a_free_seat() -> None:
    cy = a_person("cy")
    people = (absent(ANA, "bo"), absent(cy, "bo"), BO)
    assert judged(by_bo(), *people).on_behalf == "ana"
    assert judged(by_bo(votes=(vote("ana@example.org", person_id="ana"),)), *people).on_behalf == "cy"
    assert judged(by_bo(votes=(vote("dan", on_behalf="ana"),)), *people).on_behalf == "cy"
    assert judged(by_bo(votes=(vote("cy"), vote("ana"))), *people).on_behalf == "ana"
    assert judged(by_bo(requester="ana"), *people).on_behalf == "cy"


def test_delegate_of_several_approvers_fills_an_incomplete_group() -> None:
    """With `wanted` always empty, the vote counted as Ana's, whose group needed no further person."""
    dan = a_person("dan", roles=("cfo",))
    people = (absent(ANA, "bo"), absent(dan, "bo"), BO)
    groups = (ApproverGroup(of=("role:approvers",), quorum=1), ApproverGroup(of=("role:cfo",), quorum=1))
    terms = {"approvers": ("role:approvers", "role:cfo"), "groups": groups, "quorum": 2}
    found = judged(by_bo(**terms), *people)
    assert (found.on_behalf, found.entries) == ("ana", ("role:approvers",))
    votes = (vote("cy", entries=("role:approvers",)),)
    found = judged(by_bo(**terms, votes=votes), *people)
    assert (found.on_behalf, found.entries) == ("dan", ("role:cfo",))


@table(
    ("person", "code"),
    (ANA, ""),
    (Person(id="guest"), ""),
    (Person(id="oz", roles=("admin",)), ""),
    (Person(id="eve"), "not_allowed"),
)
def test_requester_approver_and_operator_may_withdraw(person: Person, code: str) -> None:
    withdrawal = asked({"verdict": "withdrawn", "subject": person.id, "assurance": "none"}, min_assurance="mfa")
    found = judged(withdrawal, person, kind="signed", development=False)
    assert (found.allowed, found.code, found.subject) == (not code, code, person.id)


def test_unsigned_withdrawal_does_not_count_by_the_terms_of_its_question() -> None:
    withdrawal = asked({"verdict": "withdrawn"}, accept_unsigned=True, min_assurance="none")
    assert judged(withdrawal, ANA, development=False) == Authority(allowed=False, code="assurance", unsigned=True)


@settings(max_examples=150, deadline=None)
@drawn(
    active=st.booleans(),
    listed=st.booleans(),
    delegating=st.booleans(),
    hours=st.sampled_from([-2.0, 2.0]),
    kind=st.sampled_from(["signed", "unsigned"]),
    development=st.booleans(),
    allow_self=st.booleans(),
    accept=st.booleans(),
    requester=st.sampled_from(["ana", "bo", "guest"]),
    have=st.sampled_from(ASSURANCES),
    need=st.sampled_from(ASSURANCES),
)
def test_allowed_authority_satisfies_every_rule(
    active: bool,
    listed: bool,
    delegating: bool,
    hours: float,
    kind: Any,
    development: bool,
    allow_self: bool,
    accept: bool,
    requester: str,
    have: Any,
    need: Any,
) -> None:
    bo = replace(BO, active=active, roles=("approvers",) if listed else ())
    ana = absent(ANA, "bo", hours=hours) if delegating else ANA
    task = asked(
        {"subject": "bo", "assurance": have},
        requester=requester,
        allow_self=allow_self,
        accept_unsigned=accept,
        min_assurance=need,
    )
    found = judged(task, ana, bo, kind=kind, development=development)
    assert found.allowed == (found.code == "")
    if found.allowed:
        assert active
        assert kind == "signed" or development or accept
        assert listed or (delegating and hours > 0 and found.on_behalf == "ana")
        assert allow_self or requester not in ("bo", found.on_behalf)
        assert kind == "unsigned" or ASSURANCES.index(have) >= ASSURANCES.index(need)
