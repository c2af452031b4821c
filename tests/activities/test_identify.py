import asyncio
import dataclasses
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

import pytest
from activity_kit import asked as asked_by_gates
from activity_kit import decision, environment, worker_deps
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from some import some
from tables import table
from turn_fixtures import Ledger, pay_tool

from signoff.activities.identify_activity import IdentifyActivity, proof_of
from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest, ApproverGroup, Vote
from signoff.contracts.decision import ASSURANCES, UNSIGNED, Decision, GrantRequest
from signoff.contracts.errors import Unavailable
from signoff.contracts.person import Delegation, Person, Principal
from signoff.formats.replace import replace
from signoff.keys.signatures import PrivateKeys, Signer, Verifier, new_key
from signoff.people.authority import check_authority
from signoff.people.directory import FixedDirectory
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.store.questions.questions import Questions
from signoff.store.questions.raw_answers import RawAnswers
from signoff.store.store import Store
from signoff.testing.builders import a_decision, a_person, a_question, a_request

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
    assert bare.allowed == (enough or (have == "none" and need in ("link", "channel")))
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


async def identified(deps: WorkerDeps, decision: Decision, *, number: str = "1") -> Authority:
    """`number` is the activity's number in its run."""
    return await environment(activity_id=number).run(IdentifyActivity(deps).identify, decision)


OPEN_TOOL = ApprovalPolicy(accept_unsigned=True, min_assurance="none")


@table(
    ("profile", "change", "code"),
    ("development", {}, ""),
    ("development", {"subject": "nobody"}, "not_allowed"),
    ("development", {"subject": ""}, ""),
    ("production", {}, "assurance"),
)
async def test_raw_answer_is_judged_by_profile_and_directory(
    store: Store, profile: Any, change: dict[str, Any], code: str
) -> None:
    deps = worker_deps(store, pay_tool(Ledger()), people=[ANA], profile=profile)
    await Questions(store).ask(a_question(approvers=("role:approvers",)), b"{}")
    found = await identified(deps, given(**change))
    assert (found.allowed, found.code) == (not code, code)
    assert found.subject != UNSIGNED or change == {"subject": ""}
    rows = some(await Questions(store).read("main.s.t.c1.1"))
    assert [each.vote.unsigned for each in rows.answers] == [True] * (not code)


async def test_raw_answer_is_stored_with_its_missing_fields_filled(store: Store) -> None:
    deps = worker_deps(store, pay_tool(Ledger()), people=[ANA])
    await Questions(store).ask(a_question(approvers=("role:approvers",)), b"{}")
    short = {"revision": None, "question_hash": "", "delivery_id": ""}
    found = await identified(deps, given(**short))
    rows = some(await Questions(store).read("main.s.t.c1.1"))
    taken = some(found.taken)
    assert (taken.revision, taken.question_hash) == (1, rows.request(rows.latest).question_hash)
    assert taken.received_at is not None
    assert len(taken.delivery_id) == 32
    # A retried task may renumber its activities. The repeated answer is still the same answer.
    for number in ("1", "2"):
        assert (await identified(deps, given(**short), number=number)).taken == taken
    again = await identified(deps, given(**short | {"reason": "once more"}), number="2")
    assert again.receipt is not None
    assert (again.receipt.status, again.receipt.code) == ("refused", "already_decided")
    after = some(await Questions(store).read("main.s.t.c1.1"))
    assert len(after.answers) == 1


async def test_disabled_raw_answers_are_rejected_even_in_development(store: Store) -> None:
    plain = worker_deps(store, pay_tool(Ledger()), people=[ANA])
    deps = dataclasses.replace(plain, raw_answers=False)
    await Questions(store).ask(a_question(approvers=("role:approvers",)), b"{}")
    assert await identified(deps, given()) == Authority(allowed=False, code="assurance", unsigned=True)


async def test_unsigned_withdrawal_does_not_reveal_the_named_person(store: Store) -> None:
    deps = worker_deps(store, pay_tool(Ledger(), OPEN_TOOL), people=[ANA], profile="production")
    await Questions(store).ask(a_question(approvers=("role:approvers",)), b"{}")
    assert await identified(deps, given(verdict="withdrawn")) == Authority(
        allowed=False, code="assurance", unsigned=True
    )


@table(
    ("stored", "subject", "allowed", "code"),
    (True, "guest", True, ""),
    (True, "bo", True, ""),
    (True, "ana", False, "not_allowed"),
    (False, "guest", False, "assurance"),
)
async def test_unsigned_withdrawal_in_development_is_judged_by_the_stored_question(
    store: Store, stored: bool, subject: str, allowed: bool, code: str
) -> None:
    deps = worker_deps(store, pay_tool(Ledger()), people=[ANA, BO, Person(id="guest")])
    if stored:
        await Questions(store).ask(a_question(approvers=("user:bo",)), b"{}")
    found = await identified(deps, given(verdict="withdrawn", subject=subject))
    assert (found.allowed, found.code, found.unsigned, found.assurance) == (allowed, code, True, "none")


async def test_raw_answer_resent_after_a_rejection_has_a_new_time(store: Store) -> None:
    plain = worker_deps(store, pay_tool(Ledger()), people=[BO])
    await Questions(store).ask(a_question(approvers=("role:approvers",), timeout=2.0), b"{}")
    assert (await identified(plain, given())).code == "not_allowed"
    over = time.monotonic() + 2.1
    while time.monotonic() < over:
        await asyncio.sleep(0.05)
    known = dataclasses.replace(plain, people=FixedDirectory([ANA]))
    found = await identified(known, given())
    assert (found.allowed, found.code) == (False, "expired")


async def test_raw_answers_above_the_storage_limit_are_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signoff.store.questions.raw_answers.ANSWERS_KEPT", 1)
    deps = worker_deps(store, pay_tool(Ledger()), people=[ANA, BO])
    await Questions(store).ask(a_question(approvers=("user:ana", "user:bo"), quorum=2), b"{}")
    assert (await identified(deps, given())).allowed
    more = await identified(deps, given(subject="bo"), number="2")
    assert more.receipt is not None
    assert (more.receipt.status, more.receipt.why) == ("refused", "enough")
    assert (await identified(deps, given(subject="bo", verdict="denied"), number="3")).allowed


async def test_raw_answer_without_the_database_right_waits_for_a_gateway(store: Store) -> None:
    deps = worker_deps(store, pay_tool(Ledger(), OPEN_TOOL), people=[ANA], profile="production")
    await Questions(store).ask(a_question(approvers=("role:approvers",)), b"{}")
    store.role = "worker"
    found = await identified(deps, given())
    assert (found.allowed, some(found.receipt).status) == (False, "pending")
    kept = await RawAnswers(store).list_untaken(10)
    assert [each.decision for each in kept] == [given()]
    rows = some(await Questions(store).read("main.s.t.c1.1"))
    assert rows.answers == ()


class Moody(FixedDirectory):
    def __init__(self, error: Exception) -> None:
        super().__init__([ANA])
        self.error = error

    def find(self, person_id: str, tenant: str = "main") -> Person | None:
        raise self.error


@table("error", Unavailable("the directory does not answer"), RuntimeError("secret words"))
async def test_failing_directory_allows_no_decision_and_keeps_the_answer(
    store: Store, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    plain = worker_deps(store, pay_tool(Ledger()))
    deps = WorkerDeps(plain.catalog, store, Moody(error), {}, plain.mark_key)
    await Questions(store).ask(a_question(approvers=("role:approvers",)), b"{}")
    found = await identified(deps, given())
    assert found == Authority(allowed=False, code="unavailable")
    assert [record.message.rpartition(": ")[2] for record in caplog.records] == [type(error).__name__]
    # The answer is kept: it counts after the directory recovers.
    kept = await RawAnswers(store).list_untaken(10)
    assert [each.decision for each in kept] == [given()]


async def test_worker_without_keys_believes_no_signature(store: Store) -> None:
    deps = worker_deps(store, pay_tool(Ledger()), people=[ANA])
    assert deps.verifier.key_ids == ()
    for change in ({"signature": "anything"}, {"key_id": "k"}, {"signature": "anything", "key_id": "k"}):
        found = await identified(deps, given(**change))
        assert found == Authority(allowed=False, code="assurance")


@table("profile", "production", "development")
async def test_rejected_raw_answer_reveals_a_name_only_in_development(store: Store, profile: Any) -> None:
    bo = Person(id="bo", name="Bo Berg", identities={"email": ("bo@example.com",)})
    tool = pay_tool(Ledger(), OPEN_TOOL)
    deps = worker_deps(store, tool, people=[ANA, bo], profile=profile)
    request = await asked_by_gates(deps, tool)
    names = {"subject": "bo", "approval_id": request.id, "question_hash": request.question_hash}
    found = await identified(deps, given(**names))
    assert (found.allowed, found.code) == (False, "not_allowed")
    assert ("Berg" in found.model_dump_json()) is (profile == "development")
    assert profile == "development" or found.subject == ""


@table("role", "approvers", "finance")
async def test_approvers_come_from_the_stored_question(store: Store, role: str) -> None:
    bo = Person(id="bo", name="Bo", roles=(role,))
    tool = pay_tool(Ledger(), OPEN_TOOL)
    deps = worker_deps(store, tool, people=[ANA, bo], profile="production")
    request = await asked_by_gates(deps, tool)
    answer = given(subject="bo", approval_id=request.id, question_hash=request.question_hash)
    assert (await identified(deps, answer)).allowed is (role == "approvers")


@table("known", True, False)
async def test_present_policy_decides_whether_unsigned_answers_count(store: Store, known: bool) -> None:
    deps = worker_deps(store, pay_tool(Ledger()), people=[ANA], profile="production")
    if known:
        await Questions(store).ask(a_question(approvers=("role:approvers",), accept_unsigned=True), b"{}")
    found = await identified(deps, given())
    assert found == Authority(allowed=False, code="assurance", unsigned=True)
    assert await RawAnswers(store).list_untaken(1) == []


GROUP = ApproverGroup(of=("role:approvers",), quorum=1)


@table(
    ("question", "subject", "code"),
    ({}, "ana", ""),
    ({"requester": Principal(user="ana")}, "ana", "self_approval"),
    ({"requester": Principal(user="x", person_id="ana")}, "ana", "self_approval"),
    ({"requester": Principal(user="ana"), "allow_self": True}, "ana", ""),
    ({"proposers": ("ana",)}, "ana", "self_approval"),
    ({"escalate_to": ("user:bo",)}, "bo", "not_allowed"),
)
async def test_requester_and_approvers_come_from_the_stored_question(
    store: Store, question: dict[str, Any], subject: str, code: str
) -> None:
    deps = worker_deps(store, pay_tool(Ledger(), OPEN_TOOL), people=[ANA, BO], profile="production")
    await Questions(store).ask(a_question(**{"approvers": ("role:approvers",)} | question), b"{}")
    found = await identified(deps, given(subject=subject))
    assert (found.allowed, found.code) == (not code, code)


async def test_raw_answer_counts_only_for_the_latest_revision(store: Store) -> None:
    deps = worker_deps(store, pay_tool(Ledger(), OPEN_TOOL), people=[ANA, BO], profile="production")
    for who in ("user:ana", "user:bo"):
        await Questions(store).ask(a_question(approvers=(who,)), b"{}")
    codes = {}
    for number, revision in enumerate((1, 2, None, 3)):
        codes[revision] = (await identified(deps, given(revision=revision), number=str(number))).code
    assert codes == {1: "stale", 2: "not_allowed", None: "stale", 3: "stale"}


@table("grouped", True, False)
async def test_groups_come_from_the_stored_question(store: Store, grouped: bool) -> None:
    deps = worker_deps(store, pay_tool(Ledger(), OPEN_TOOL), people=[ANA], profile="production")
    row = a_question(approvers=("role:approvers",), groups=(GROUP,) if grouped else ())
    await Questions(store).ask(row, b"{}")
    found = await identified(deps, given())
    assert found.allowed
    assert found.entries == (("role:approvers",) if grouped else ())


@table("profile", "production", "development")
async def test_raw_answer_with_a_grant_request_is_malformed(store: Store, profile: Any) -> None:
    deps = worker_deps(store, pay_tool(Ledger(), OPEN_TOOL), people=[ANA, BO], profile=profile)
    row = a_question(approvers=("role:approvers",), groups=(GROUP,), allow_remember=True)
    await Questions(store).ask(row, b"{}")
    wish = GrantRequest()
    found = await identified(deps, given(remember=wish))
    assert found.receipt is not None
    assert (found.allowed, found.code) == (False, "malformed")
    assert found.subject == ("ana" if profile == "development" else "")
    assert found.receipt.message == "`remember`: only an answer given through the gateway is remembered"
    other = await identified(deps, given(remember=wish, subject="bo"), number="2")
    assert (other.allowed, other.code, some(other.receipt).message) == (False, "not_allowed", "")


@table(
    ("change", "proof"),
    ({}, "unsigned"),
    ({"signature": "forged"}, "forged"),
    ({"key_id": "k"}, "forged"),
    ({"signature": "forged", "key_id": "k"}, "forged"),
)
def test_claimed_but_invalid_signature_is_forged(change: Any, proof: str) -> None:
    assert proof_of(decision(**change), Verifier()) == proof


def test_answer_signed_by_a_known_key_is_signed() -> None:
    key = new_key(RECEIVED - HOUR)
    signer = Signer(PrivateKeys(keys=(key,)))
    assert proof_of(signer.sign_decision(decision(received_at=RECEIVED)), signer.verifier()) == "signed"
