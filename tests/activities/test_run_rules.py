from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from activity_kit import ARGS, TURN, about, asked, decision, pinned, task_for, worker_deps
from passkey_device import PRESENT, VERIFIED, PasskeyDevice
from signed_askers import signed_asker
from some import some
from tables import table
from turn_fixtures import GUEST, Ledger, catalog_of, pay_tool

from signoff.activities.caller_check import ActivityCaller, caller_problem
from signoff.activities.run_rules import (
    RUN,
    RunCheck,
    SignaturePolicy,
    StoredApproval,
    approval_of,
    ask_if_doubted,
    check_run,
    is_believed,
    is_expired,
    voter_set,
)
from signoff.approvals.binding import digest_with
from signoff.approvals.digest import question_hash
from signoff.approvals.machine import vote_of
from signoff.approvals.request_state import StoredAnswer, assigned_hash
from signoff.contracts.activity_messages import Authority, GateDecision, RunTask, Tally
from signoff.contracts.approval import AppliedTerm, ApprovalRequest, ApproverGroup, Question, Vote
from signoff.contracts.call import REQUESTER_RULE
from signoff.contracts.content import Content
from signoff.contracts.decision import ASSIGNING, Assigning, Decision, Passkey, Presence
from signoff.contracts.limits import ASKED_SECONDS
from signoff.contracts.message import CallPart
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.keys.passkeys import decision_challenge, encode, sign_passkey
from signoff.keys.signatures import PrivateKeys, Signer, Verifier, new_key
from signoff.people.directory import FixedDirectory
from signoff.people.eligibility import ApproverSpec
from signoff.people.voter_set import Escalation, VoterSet
from signoff.policy.approval_policy import ApprovalPolicy, ShownArguments
from signoff.policy.terms import VerdictTerms
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.gates.pipeline import judge
from signoff.registry.tool import Tool
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import Questions
from signoff.store.store import Store
from signoff.testing.builders import a_person, a_question
from signoff.testing.questions import answer

LEDGER = Ledger()
GATED = pay_tool(LEDGER)
CALLER = ActivityCaller("ActorTurn", TURN.workflow_id, "pay", "c1.1")
APPROVERS = (a_person("approver"), a_person("ana"))
PEOPLE = (*APPROVERS, a_person("guest", roles=()))
LENIENT = SignaturePolicy(Verifier(), development=True)


async def rows_of(store: Store) -> ApprovalRows | None:
    return await Questions(store).read(decision().approval_id)


async def weighed(
    store: Store, tool: Tool, task: RunTask, *decisions: Decision, signature_policy: SignaturePolicy = LENIENT
) -> RunCheck:
    for each in decisions:
        await answer(store, each)
    deps = worker_deps(store, tool, people=APPROVERS)
    call = CallPart(call="c1.1", tool="pay", args=Content(inline=ARGS))
    found = judge(deps.catalog, task.ctx, call, ARGS, Tally())
    rows = await rows_of(store)
    approval = approval_of(task.revision, rows)
    questions = () if approval is None else (approval.question,)
    terms = deps.catalog.terms("pay", found.verdict)
    return check_run(
        task,
        task_for(tool).digest,
        found,
        deps.catalog.policy("pay"),
        terms,
        signature_policy=signature_policy,
        voters=voter_set(deps.catalog, deps.people, task.ctx, "pay", terms, datetime.now(UTC), questions),
        approval=approval,
        now=datetime.now(UTC) if rows is None else rows.now,
    )


async def put(store: Store, tool: Tool) -> ApprovalRequest:
    return await asked(worker_deps(store, tool), tool)


@table(
    ("caller", "problem"),
    (CALLER, ""),
    (ActivityCaller("", "", "pay", "c1.1"), "this tool runs only inside a turn"),
    (ActivityCaller("actorturn", TURN.workflow_id, "pay", "c1.1"), "this tool runs only inside a turn"),
    (ActivityCaller("ActorTurn", "turn/main/s/other", "pay", "c1.1"), "its task names another turn"),
    (ActivityCaller("ActorTurn", "turn/other/s/t", "pay", "c1.1"), "its task names another turn"),
    (ActivityCaller("ActorTurn", "turn/main/other/t", "pay", "c1.1"), "its task names another turn"),
    (ActivityCaller("ActorTurn", TURN.workflow_id, "refund", "c1.1"), "its task names another call"),
    (ActivityCaller("ActorTurn", TURN.workflow_id, "pay", "c1.2"), "its task names another call"),
)
def test_only_the_turn_and_call_of_the_permit_may_use_it(caller: ActivityCaller, problem: str) -> None:
    assert caller_problem(caller, task_for(GATED), "pay") == problem


@table("revision", None, 1)
async def test_task_with_another_digest_is_stale(store: Store, revision: int | None) -> None:
    tool = pay_tool(LEDGER, revision is not None)
    stale = RunCheck("again", "the tool changed while the request was waiting", "stale")
    assert await weighed(store, tool, task_for(tool, revision=revision, digest="0" * 64)) == stale
    assert await weighed(store, tool, task_for(tool, {"amount": 2}, revision=revision)) == stale


@table("leaves_out", ("question_hash",), ("question_hash", "revision"), ())
async def test_single_decision_about_this_call_is_enough(store: Store, leaves_out: tuple[str, ...]) -> None:
    request = await put(store, GATED)
    decision = replace(about(request), **{"question_hash": "", "revision": None} if len(leaves_out) == 2 else {})
    decision = replace(decision, question_hash="") if leaves_out else decision
    assert await weighed(store, GATED, task_for(GATED, revision=1), decision) == RUN


OTHER = "a decision is about something else"
FEW = "too few people have approved this"


@table("is_signed", True, False)
async def test_call_runs_only_by_a_stored_decision(store: Store, *, is_signed: bool) -> None:
    now = datetime.now(UTC)
    signer = Signer(PrivateKeys(keys=(new_key(now),)))
    policy = SignaturePolicy(signer.verifier(), development=not is_signed)
    ctx = pinned(user=signed_asker(signer, GUEST, *TURN, at=now))
    tool = pay_tool(LEDGER)
    request = await asked(worker_deps(store, tool), tool, ctx=ctx)
    bare = about(request, received_at=now, assurance="session")
    decision = signer.sign_decision(bare) if is_signed else bare
    task = task_for(tool, ctx=ctx, revision=1)
    assert await weighed(store, tool, task, signature_policy=policy) == RunCheck("refuse", FEW)
    assert await weighed(store, tool, task, decision, signature_policy=policy) == RUN


@table(
    ("fields", "why"),
    ({}, ""),
    ({"verdict": "denied"}, "another decision"),
    ({"person": "ana"}, "another person"),
    ({"flags": PRESENT}, "did not verify the person"),
    ({"presence": None}, "no passkey proves its presence"),
    ({"presence": None, "assurance": "mfa"}, "not identified strongly enough"),
)
async def test_tool_that_needs_presence_runs_only_by_a_verified_passkey(
    store: Store, fields: dict[str, Any], why: str
) -> None:
    now = datetime.now(UTC)
    signer = Signer(PrivateKeys(keys=(new_key(now),)))
    ctx = pinned(user=signed_asker(signer, GUEST, *TURN, at=now))
    tool = pay_tool(LEDGER, ApprovalPolicy(min_assurance="present"))
    request = await asked(worker_deps(store, tool), tool, ctx=ctx)
    device = PasskeyDevice("localhost", "http://localhost:8300", flags=fields.get("flags", PRESENT | VERIFIED))
    passkey = Passkey(
        credential=encode(device.credential),
        tenant=TURN.tenant,
        person=fields.get("person", "approver"),
        public_key=encode(device.public_key),
        rp_id=device.rp_id,
        origin=device.origin,
        added_at=now,
        added_by="approver",
    )
    answer = about(request, received_at=now, assurance="present")
    shown = replace(answer, verdict=fields.get("verdict", "approved"))
    assertion = device.answer(encode(decision_challenge(shown, "nonce")), "nonce")
    proof = Presence(passkey=sign_passkey(passkey, signer), assertion=assertion)
    claimed = {name: value for name, value in fields.items() if name in ("presence", "assurance")}
    signed = signer.sign_decision(replace(answer, **{"presence": proof} | claimed))
    policy = SignaturePolicy(signer.verifier(), development=True)
    check = await weighed(store, tool, task_for(tool, ctx=ctx, revision=1), signed, signature_policy=policy)
    assert check.kind == ("refuse" if why else "run"), check
    assert why in check.why


async def test_unsigned_answer_never_replaces_a_passkey(store: Store) -> None:
    tool = pay_tool(LEDGER, ApprovalPolicy(min_assurance="present", accept_unsigned=True))
    request = await put(store, tool)
    unsigned = about(request, received_at=datetime.now(UTC), assurance="present")
    assert (await weighed(store, tool, task_for(tool, revision=1), unsigned)).kind == "refuse"


async def test_answer_to_a_first_revision_does_not_count_for_a_later_one(store: Store) -> None:
    request = await put(store, GATED)
    await Questions(store).end(request.id, 1, "superseded")
    assert (await put(store, GATED)).revision == 2
    later = task_for(GATED, revision=2)
    assert await weighed(store, GATED, later, decision()) == RunCheck("refuse", FEW)
    assert await weighed(store, GATED, later, decision(revision=2)) == RUN


TWO = pay_tool(LEDGER, ApprovalPolicy(quorum=2))
PAIR = (decision(), decision(subject="ana"))


@table(
    ("tool", "before", "decisions", "runs"),
    (GATED, GATED, (), False),
    (GATED, TWO, (decision(),), False),
    (GATED, TWO, PAIR, True),
    (GATED, TWO, (decision(), decision(delivery_id="again")), False),
    (TWO, TWO, (decision(),), False),
    (TWO, TWO, PAIR, True),
)
async def test_quorum_needs_distinct_people(
    store: Store, tool: Tool, before: Tool, decisions: tuple[Decision, ...], runs: bool
) -> None:
    # As many different people as the question and the present policy ask. One person twice counts once.
    await put(store, before)
    found = await weighed(store, tool, task_for(tool, revision=1), *decisions)
    assert found == (RUN if runs else RunCheck("refuse", FEW))


async def test_raised_quorum_is_asked_again(store: Store) -> None:
    await put(store, GATED)
    task = task_for(TWO, revision=1)
    more = RunCheck("again", "more people have to approve this now", "policy")
    assert await weighed(store, TWO, task) == RunCheck("refuse", FEW)
    assert await weighed(store, TWO, task, decision()) == more


ANA = Person(id="ana", tier="trusted", roles=("a", "b"))


@table("development", True, False)
@table(
    ("person", "sure"),
    (ANA, True),
    (replace(ANA, roles=("b", "a")), True),
    (replace(ANA, active=False), False),
    (replace(ANA, tier="standard"), False),
    (replace(ANA, roles=("a",)), False),
    (replace(ANA, roles=("a", "b", "c")), False),
)
def test_requester_must_match_the_directory(person: Person, sure: bool, development: bool) -> None:
    user = replace(GUEST, user="ana", tier="trusted", roles=("a", "b"))
    assert is_believed(pinned(user=user), person, development=development) is sure


@table("development", True, False)
def test_unknown_requester_is_believed_only_in_development(development: bool) -> None:
    assert is_believed(pinned(), None, development=development) is development


async def test_doubted_requester_turns_an_automatic_call_into_a_question(store: Store) -> None:
    tool = pay_tool(LEDGER, ApprovalPolicy(auto_approve_if="true"))
    call = CallPart(call="c1.1", tool="pay", args=Content(inline=ARGS))
    run = judge(worker_deps(store, tool).catalog, pinned(), call, ARGS, Tally())
    found = ask_if_doubted(run, "it is too long ago")
    assert (found.kind, found.tool, found.verdict.verdict) == ("ask", run.tool, "ask")
    assert (found.verdict.rule, found.verdict.rule_text) == (REQUESTER_RULE, "")
    assert found.verdict.why == "it is too long ago"
    assert found.verdict.policy_hash == run.verdict.policy_hash
    asked = judge(worker_deps(store, GATED).catalog, pinned(), call, ARGS, Tally())
    assert ask_if_doubted(asked, "it is too long ago") is asked
    routed = pay_tool(LEDGER, ApprovalPolicy(auto_approve_if="true", route_to="['role:finance']"))
    found = ask_if_doubted(
        judge(worker_deps(store, routed).catalog, pinned(), call, ARGS, Tally()), "it is too long ago"
    )
    assert (found.kind, found.verdict.terms.approvers) == ("ask", ("role:finance",))
    bare = JudgedCall(GateDecision(call="c1.1", kind="run"))
    assert ask_if_doubted(bare, "it is too long ago") is bare


ASKED = timedelta(seconds=ASKED_SECONDS)
OPENED = datetime(2026, 3, 1, 12, tzinfo=UTC)
BOSS = ("role:boss",)
ESCALATES = VerdictTerms(approvers=("role:approvers",), escalate_after=60.0, escalate_to=BOSS)


def question(**fields: Any) -> Question:
    given: dict[str, Any] = {
        "approvers": ("role:approvers",),
        "escalate_after": 60.0,
        "escalate_to": BOSS,
        "opened_at": OPENED,
    }
    return a_question(**given | fields)


def voters(terms: VerdictTerms, *questions: Question, policy: Any = True, **ctx: Any) -> VoterSet:
    found = catalog_of([pay_tool(LEDGER, policy)])
    return voter_set(found, FixedDirectory(PEOPLE), pinned(**ctx), "pay", terms, OPENED, questions)


def test_voters_come_from_present_policy_and_each_question() -> None:
    group = ApproverGroup(of=("role:board",), quorum=2)
    terms = VerdictTerms(approvers=("role:approvers", "role:board"), quorum=3, groups=(group,))
    other = question(approvers=("role:legal",), quorum=2, allow_self=True, proposers=("ana",))
    policy = ApprovalPolicy(allow_self_approval=True)
    found = voters(terms, question(), other, question(revision=2), policy=policy)
    assert found.specs == (
        ApproverSpec("main", terms.alone(), "guest", True),
        ApproverSpec("main", question().alone(), "guest", False),
        ApproverSpec("main", other.alone(), "guest", True, ("ana",)),
    )
    assert found.now == OPENED
    assert not voters(terms).specs[0].allow_self
    assert not voters(terms, policy=False).specs[0].allow_self
    # The person behind the requesting account may not vote with another account.
    human = replace(GUEST, person_id="human")
    assert voters(terms, user=human).specs[0].requester_person == "human"


@table(
    ("asked_by", "terms", "after"),
    ({}, {}, 60),
    ({"escalate_after": 90.0}, {}, 90),
    ({}, {"escalate_after": 90.0}, 90),
    ({"escalate_after": None, "on_timeout": "escalate", "timeout": 70.0}, {}, 70),
    ({"escalate_after": 80.0, "on_timeout": "escalate", "timeout": 70.0}, {}, 70),
    ({"timeout": 30.0}, {}, 60),
    ({}, {"escalate_after": None, "on_timeout": "escalate", "timeout": 75.0}, 75),
    ({"kind": "in_doubt"}, {"escalate_after": None}, 60),
    ({"kind": "in_doubt"}, {"escalate_after": 90.0}, 60),
)
def test_escalation_time_is_the_later_of_question_and_terms(
    asked_by: dict[str, Any], terms: dict[str, Any], after: int
) -> None:
    found = voters(replace(ESCALATES, **terms), question(**asked_by))
    assert found.escalations == (Escalation(OPENED + timedelta(seconds=after), BOSS),)


@table(
    ("asked_by", "terms"),
    ({"escalate_to": ()}, {}),
    ({}, {"escalate_to": ()}),
    ({}, {"escalate_to": ("role:board",)}),
    ({"escalate_after": None}, {}),
    ({"escalate_after": None, "kind": "in_doubt"}, {}),
    ({}, {"escalate_after": None}),
    ({"opened_at": None}, {}),
    ({"opened_at": None, "edit_of": 1}, {}),
)
def test_question_or_terms_without_escalation_add_no_voters(asked_by: dict[str, Any], terms: dict[str, Any]) -> None:
    assert voters(replace(ESCALATES, **terms), question(**asked_by)).escalations == ()


def test_escalation_adds_only_approvers_in_both_question_and_terms() -> None:
    terms = replace(ESCALATES, escalate_to=("role:cfo", "role:board"))
    (found,) = voters(terms, question(escalate_to=("role:boss", "role:board", "role:cfo"))).escalations
    assert found.to == ("role:board", "role:cfo")


def test_edit_by_an_escalation_approver_keeps_the_escalation() -> None:
    everybody = ("role:approvers", *BOSS)
    edited = question(edit_of=1, approvers=everybody)
    always = (Escalation(datetime.min.replace(tzinfo=UTC), BOSS),)
    assert voters(ESCALATES, edited).escalations == always
    assert voters(replace(ESCALATES, escalate_after=None), edited).escalations == always
    later = (Escalation(OPENED + timedelta(seconds=60), BOSS),)
    assert voters(ESCALATES, question(edit_of=1)).escalations == later
    assert voters(ESCALATES, question(approvers=everybody)).escalations == later
    assert voters(ESCALATES, question(edit_of=1, approvers=BOSS)).escalations == always
    nobody = replace(ESCALATES, escalate_to=())
    assert voters(nobody, edited).escalations == ()


@table(
    ("user", "expired"),
    ({"issued_at": OPENED - ASKED + timedelta(seconds=1)}, False),
    ({"issued_at": OPENED - ASKED}, True),
    ({"issued_at": OPENED - ASKED - timedelta(seconds=1)}, True),
    ({"issued_at": datetime(2027, 1, 1)}, True),
    ({}, False),
    ({"signature": "s", "key_id": "k"}, True),
    ({"signature": "s"}, True),
    ({"key_id": "k"}, True),
)
def test_turn_may_ask_until_a_week_after_its_start(user: dict[str, Any], expired: bool) -> None:
    assert is_expired(replace(GUEST, **user), OPENED) is expired


SIGNER = Signer(PrivateKeys(keys=(new_key(OPENED - timedelta(days=1)),)))
STRICT = SignaturePolicy(SIGNER.verifier(), development=False)
MINUTE = timedelta(seconds=60)
APPROVED = task_for(GATED, revision=1)


def bound(**fields: Any) -> Question:
    return a_question(**{"digest": APPROVED.digest, "approvers": ("role:approvers",), "opened_at": OPENED} | fields)


def yes(asked: Question, subject: str = "approver", *, unsigned: bool = False, **fields: Any) -> Decision:
    given: dict[str, Any] = {
        "approval_id": asked.id,
        "revision": asked.revision,
        "question_hash": question_hash(asked),
        "verdict": "approved",
        "subject": subject,
        "assurance": "session",
        "received_at": OPENED + MINUTE,
        "delivery_id": f"of {subject}",
    }
    made = Decision(**given | fields)
    return made if unsigned else SIGNER.sign_decision(made)


def checked(
    asked: Question,
    *decisions: Decision,
    rules: ApprovalPolicy | None = None,
    terms: VerdictTerms | None = None,
    after: float = 120.0,
    found: JudgedCall | None = None,
    **stored: Any,
) -> RunCheck:
    """`after` is in seconds since the question. `stored` replaces the approval."""
    rules, terms = rules or ApprovalPolicy(), terms or VerdictTerms(approvers=("role:approvers",))
    tool = pay_tool(LEDGER, rules)
    given: dict[str, Any] = {"completed_at": OPENED + MINUTE} | stored
    return check_run(
        APPROVED,
        APPROVED.digest,
        found or JudgedCall(GateDecision(call="c1.1", kind="ask"), tool=tool),
        catalog_of([tool]).policy("pay"),
        terms,
        signature_policy=STRICT,
        voters=voters(terms, asked, policy=rules),
        approval=StoredApproval(asked, question_hash(asked), decisions or (yes(asked),), **given),
        now=OPENED + timedelta(seconds=after),
    )


def test_unsigned_hand_on_or_added_approver_runs_nothing() -> None:
    for verdict in ASSIGNING:
        made = Decision(approval_id=bound().id, verdict=verdict, subject="ana", to="bo", revision=1, question_hash="h")
        vote = Vote(subject="ana", verdict=verdict, at=OPENED, decision=made)
        refused = checked(bound(), assignments=(vote,))
        assert refused == RunCheck("refuse", "the gateway did not sign a hand-on or an added approver of this")


def test_card_whose_content_changed_is_asked_again() -> None:
    changed = RunCheck("again", "the card of this has changed", "stale")
    assert checked(bound()) == RUN
    assert checked(bound(secrets=("to",))) == changed
    assert checked(bound(show=("to",))) == changed
    assert checked(bound(), found=JudgedCall(GateDecision(call="c1.1", kind="ask"))) == changed
    masks = pay_tool(LEDGER, ApprovalPolicy(show=ShownArguments(secret=("to",))), effect="Pay")
    masked = JudgedCall(GateDecision(call="c1.1", kind="ask"), tool=masks)
    assert checked(bound(), found=masked) == changed
    assert checked(bound(secrets=("to",)), found=masked) == RUN
    cut = ApprovalPolicy(show=ShownArguments(only=("amount",)))
    assert checked(bound(), rules=cut) == changed
    assert checked(bound(show=("amount",)), rules=cut) == RUN


def test_repeated_question_states_its_reason() -> None:
    assert checked(bound(), stale="this was asked again") == RunCheck("again", "this was asked again", "stale")
    changed = RunCheck("again", "the tool changed while the request was waiting", "stale")
    assert checked(bound(digest="other")) == changed
    assert checked(bound(), problem="this was withdrawn") == RunCheck("refuse", "this was withdrawn")


@table(
    ("mode", "proposers", "runs"),
    ("off", (), False),
    ("off", ("ana",), False),
    ("propose", (), False),
    ("propose", ("ana",), True),
    ("approve", (), True),
    ("approve", ("ana",), True),
)
def test_edited_arguments_need_a_policy_that_allows_edits(mode: Any, proposers: tuple[str, ...], runs: bool) -> None:
    rules = ApprovalPolicy(edit=mode)
    stricter = RunCheck("again", "the policy on changed arguments is stricter now", "policy")
    changed = bound(revision=2, edit_of=1, proposers=proposers)
    assert checked(changed, rules=rules) == (RUN if runs else stricter)
    assert checked(bound(proposers=proposers), rules=rules) == RUN


def test_arguments_edited_in_another_question_do_not_count() -> None:
    rules, changed = ApprovalPolicy(edit="approve"), bound(revision=2, edit_of=1)
    changed = replace(changed, digest=digest_with(changed)(ARGS))
    task = replace(APPROVED, digest=changed.digest)

    def worth(change: Decision, edited: str) -> RunCheck:
        terms = VerdictTerms(approvers=("role:approvers",))
        tool = pay_tool(LEDGER, rules)
        return check_run(
            task,
            task.digest,
            JudgedCall(GateDecision(call="c1.1", kind="ask"), tool=tool),
            catalog_of([tool]).policy("pay"),
            terms,
            signature_policy=SignaturePolicy(SIGNER.verifier(), development=True),
            voters=voters(terms, changed, policy=rules),
            approval=StoredApproval(changed, question_hash(changed), (change,), edited=edited),
            now=OPENED,
        )

    change = yes(changed, revision=1, question_hash="of the first", edited_args=ARGS)
    assert worth(change, "of the first") == RUN
    assert worth(change, "of another") == RunCheck("refuse", OTHER)
    # An unsigned decision names no question to compare with.
    raw = yes(changed, unsigned=True, revision=1, question_hash="", edited_args=ARGS)
    assert worth(raw, "of the first") == RUN
    other = yes(changed, revision=1, question_hash="of the first", edited_args={"amount": 1})
    assert worth(other, "of the first") == RunCheck("refuse", OTHER)


@table("count", 1, 2)
def test_changed_terms_that_the_votes_do_not_meet_are_asked_again(count: int) -> None:
    two = VerdictTerms(approvers=("role:approvers",), quorum=2)
    mine = catalog_of([pay_tool(LEDGER, ApprovalPolicy())]).policy("pay").hash
    asked = bound(quorum=count)
    few, more = RunCheck("refuse", FEW), RunCheck("again", "more people have to approve this now", "policy")
    assert checked(asked, terms=two) == (few if count == 2 else more)
    same = bound(policy_hash=mine)
    assert checked(same, terms=two) == few
    # The rules are the same, but now want more for this call: treated like another policy.
    added = replace(two, applied=(AppliedTerm(quorum=2),))
    assert checked(same, terms=added) == more
    assert checked(asked, yes(asked), yes(asked, "ana"), terms=two) == RUN


@table("allowed_now", True, False)
@table("allowed_then", True, False)
def test_self_approval_must_be_allowed_then_and_now(*, allowed_now: bool, allowed_then: bool) -> None:
    rules = ApprovalPolicy(allow_self_approval=allowed_now)
    asked = bound(approvers=("user:guest",), allow_self=allowed_then)
    terms = VerdictTerms(approvers=("user:guest",))
    own = RunCheck("again", "a person other than the requester has to approve this now", "policy")
    found = checked(asked, yes(asked, "guest"), rules=rules, terms=terms)
    assert found == (RUN if allowed_now and allowed_then else own)


def test_each_signed_answer_needs_the_assurance_of_question_and_terms() -> None:
    weak = RunCheck("again", "this needs a stronger sign-in now", "policy")
    asked, sure = bound(), bound(min_assurance="mfa")
    strong = VerdictTerms(approvers=("role:approvers",), min_assurance="mfa")
    assert checked(asked, yes(asked, assurance="mfa"), terms=strong) == RUN
    assert checked(asked, yes(asked), terms=strong) == weak
    assert checked(asked, yes(asked, assurance="mfa"), yes(asked, "ana"), terms=strong) == weak
    assert checked(sure, yes(sure, assurance="mfa")) == RUN
    assert checked(sure, yes(sure)) == weak
    rules = ApprovalPolicy(accept_unsigned=True)
    assert checked(asked, yes(asked, unsigned=True, assurance="none"), rules=rules, terms=strong) == RUN


def test_answer_of_a_person_no_longer_entitled_is_asked_again() -> None:
    gone = RunCheck("again", "an approver of this may not decide it now", "policy")
    asked = bound()
    assert checked(asked, yes(asked, "stranger")) == gone
    refused = RunCheck("refuse", "an answer is not signed")
    assert checked(asked, yes(asked, unsigned=True)) == refused
    # One foreign answer spoils the approval of another person.
    assert checked(asked, yes(asked), yes(asked, "")) == RunCheck("refuse", OTHER)
    assert checked(asked, yes(asked, verdict="denied")) == RunCheck("refuse", OTHER)
    assert checked(asked, yes(asked, approval_id="main.s.t.c1.2")) == RunCheck("refuse", OTHER)


@table(
    ("terms", "asked", "answered", "runs"),
    ({"timeout": 59.0}, {}, {}, False),
    ({"timeout": 60.0}, {}, {}, True),
    ({"timeout": 59.0}, {"timeout": 60.0}, {}, False),
    ({"timeout": 59.0}, {"timeout": 59.0}, {}, True),
    ({"timeout": 59.0}, {"timeout": 58.0}, {}, True),
    ({"timeout": 59.0}, {"opened_at": None}, {}, True),
    ({"timeout": 59.0}, {}, {"unsigned": True}, True),
    ({"timeout": 30.0, "on_timeout": "escalate"}, {}, {}, True),
    ({"timeout": 29.5, "on_timeout": "escalate"}, {}, {}, False),
)
def test_signed_answer_must_meet_the_present_timeout(
    terms: dict[str, Any], asked: dict[str, Any], answered: dict[str, Any], runs: bool
) -> None:
    late = RunCheck("again", "it has to be approved sooner now", "policy")
    question = bound(**asked)
    given = yes(question, **answered)
    rules = ApprovalPolicy(accept_unsigned=True)
    found = checked(question, given, rules=rules, terms=VerdictTerms(approvers=("role:approvers",), **terms))
    assert found == (RUN if runs else late)


@table(("span", "after", "runs"), (30.0, 90.0, True), (30.0, 90.001, False), (29.5, 90.0, False))
def test_approval_expires_after_its_span_from_the_last_answer(span: float, after: float, runs: bool) -> None:
    late = RunCheck("again", f"it was approved more than {span:g} seconds ago and not begun", "policy")
    expected = RUN if runs else late
    assert checked(bound(grant_ttl=span), after=after) == expected
    assert checked(bound(), rules=ApprovalPolicy(grant_ttl=span), after=after) == expected
    longer = ApprovalPolicy(grant_ttl=span * 2)
    assert checked(bound(grant_ttl=span), rules=longer, after=after) == expected
    # Without a stored time, no span ends.
    assert checked(bound(grant_ttl=span), after=after, completed_at=None) == RUN


@table(
    ("asked", "rules", "terms"),
    ({"grant_ttl": 1.0}, {}, {}),
    ({}, {"grant_ttl": 1.0}, {}),
    ({}, {}, {"timeout": 59.0}),
    ({}, {"preview_required": True}, {}),
    ({"secrets": ("to",)}, {}, {}),
    ({}, {"show": ShownArguments(only=("amount",))}, {}),
    ({"revision": 2, "edit_of": 1}, {"edit": "off"}, {}),
)
def test_answer_instead_ignores_conditions_of_a_run(
    asked: dict[str, Any], rules: dict[str, Any], terms: dict[str, Any]
) -> None:
    question, policy = bound(**asked), ApprovalPolicy(**rules)
    now = VerdictTerms(approvers=("role:approvers",), **terms)
    given: dict[str, Any] = {"verdict": "answered", "answer": "no room"}
    assert checked(question, rules=policy, terms=now).kind == "again"
    assert checked(question, yes(question, **given), rules=policy, terms=now, verdict="answered") == RUN


@table(
    ("given", "terms", "kind"),
    ({"subject": "stranger"}, {}, "again"),
    ({"subject": "ana"}, {}, "again"),
    ({"unsigned": True}, {}, "refuse"),
    ({}, {"min_assurance": "mfa"}, "again"),
    ({}, {"quorum": 2}, "again"),
)
def test_answer_instead_needs_its_author_and_their_right_of_now(
    given: dict[str, Any], terms: dict[str, Any], kind: str
) -> None:
    now = VerdictTerms(approvers=("role:approvers",), **terms)
    fields: dict[str, Any] = {"verdict": "answered", "answer": "no room"} | given
    word = yes(bound(), **fields)
    assert checked(bound(), word, terms=now, verdict="answered", editors=("ana",)).kind == kind


# The stored rows


def read(*questions: Question, answered: Sequence[Decision] = (), after: float = 120.0) -> ApprovalRows:
    moments = [OPENED + MINUTE + timedelta(seconds=number) for number in range(len(answered))]
    answers = tuple(
        StoredAnswer(
            each.revision or 1,
            number,
            vote_of(each, Authority(allowed=True, subject=each.subject, assurance="session"), at),
            at,
        )
        for number, (each, at) in enumerate(zip(answered, moments, strict=True), 1)
    )
    return ApprovalRows(questions, answers, OPENED + timedelta(seconds=after))


def claimed(rows: ApprovalRows | None, revision: int | None = 1) -> StoredApproval | None:
    return approval_of(revision, rows)


def test_call_is_approved_by_its_last_question() -> None:
    first, doubt = bound(), bound(revision=2, kind="in_doubt", doubt_of=1)
    assert claimed(None) is None
    assert claimed(read(doubt)) is None
    given = yes(first)
    found = claimed(read(first, doubt, answered=[given]))
    assert found == StoredApproval(first, question_hash(first), (given,), OPENED + MINUTE)
    second = bound(revision=3)
    assert claimed(read(first, doubt, second, answered=[given]), revision=3) == StoredApproval(
        second, question_hash(second), ()
    )


def test_approval_is_completed_by_the_last_approving_vote() -> None:
    asked = bound(quorum=2, veto=False)
    given = [yes(asked), yes(asked, "ana"), yes(asked, "bo", verdict="denied")]
    found = some(claimed(read(asked, answered=given)))
    assert (found.decisions, found.completed_at) == (tuple(given[:2]), OPENED + MINUTE + timedelta(seconds=1))


@table("verdict", *ASSIGNING)
def test_approval_after_a_removed_hand_on_or_added_approver_does_not_count(verdict: Assigning) -> None:
    asked = bound()
    made = yes(asked, "ana", verdict=verdict, to="bo", delivery_id="made")
    signed = yes(asked, assigned=assigned_hash(read(asked, answered=[made]).answers))
    whole = some(claimed(read(asked, answered=[made, signed])))
    assert (whole.problem, [each.verdict for each in whole.assignments]) == ("", [verdict])
    for answered in ([signed], [made, yes(asked)], [replace(made, to="rui"), signed]):
        hidden = some(claimed(read(asked, answered=answered)))
        assert hidden.problem == "a hand-on or an added approver of this is missing in the store"


@table(
    ("fields", "revision", "stale"),
    ({}, 1, ""),
    ({}, 2, "this was asked again"),
    ({"revision": 2}, 1, "this was asked again"),
    ({"ended_at": OPENED + MINUTE * 2, "ended_as": "lapsed"}, 1, "this request is closed"),
    ({"judged_at": OPENED - MINUTE}, 1, ""),
    ({"judged_at": OPENED + MINUTE}, 1, ""),
    (
        {"judged_at": OPENED - MINUTE - timedelta(microseconds=1)},
        1,
        "this was judged at another moment than it was asked",
    ),
)
def test_question_other_than_the_current_one_is_stale(fields: dict[str, Any], revision: int, stale: str) -> None:
    asked = bound(**fields)
    found = some(claimed(read(asked, answered=[yes(asked)]), revision=revision))
    assert (found.stale, found.problem) == (stale, "")


def test_denial_of_an_action_applies_to_each_question_about_it() -> None:
    first, other = bound(), bound(digest="other")
    second = bound(revision=2)
    no = yes(first, "ana", verdict="denied")
    found = claimed(read(first, second, answered=[no, yes(second)]), revision=2)
    assert found == StoredApproval(second, question_hash(second), (), problem="somebody denied this")
    stale = some(claimed(read(first, second, answered=[no, yes(second)])))
    assert (stale.problem, stale.stale) == ("somebody denied this", "this was asked again")
    elsewhere = some(
        claimed(read(other, second, answered=[yes(other, "ana", verdict="denied"), yes(second)]), revision=2)
    )
    assert (elsewhere.problem, elsewhere.decisions) == ("", (yes(second),))


@table(
    ("answered", "after", "problem"),
    ("denied", 120.0, "somebody denied this"),
    ("withdrawn", 120.0, "this was withdrawn"),
    ("", 86_401.0, "this was not approved in time"),
    ("", 86_399.0, ""),
)
def test_approval_does_not_count_for_a_question_that_ended_otherwise(answered: str, after: float, problem: str) -> None:
    asked = bound()
    words = [yes(asked, "ana", verdict=answered)] if answered else []
    found = claimed(read(asked, answered=words, after=after))
    assert found == StoredApproval(asked, question_hash(asked), (), problem=problem)


def test_edited_question_refers_to_the_question_of_its_edit() -> None:
    first, second = bound(digest="first"), bound(revision=2, edit_of=1)
    found = some(claimed(read(first, second), revision=2))
    assert found.edited == question_hash(first)
    alone = claimed(read(second), revision=2)
    plain = claimed(read(first, bound(revision=2)), revision=2)
    assert alone is not None
    assert plain is not None
    assert (alone.edited, plain.edited) == ("", "")
