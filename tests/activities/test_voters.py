import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activity_kit import TURN, asked, decision, pinned, run, task_for, worker_deps
from signed_askers import signed_asker
from tables import table
from turn_fixtures import GUEST, Ledger, TurnRig, catalog_of, pay_tool, yes

from signoff.activities.run_right import RunRights
from signoff.activities.run_rules import voter_set
from signoff.activities.worker_deps import Profile, WorkerDeps
from signoff.contracts.activity_messages import RunTask, ToolReply
from signoff.contracts.approval import ApprovalRequest, Terms, Vote
from signoff.contracts.decision import UNSIGNED, Decision, Verdict
from signoff.contracts.person import Delegation, Person
from signoff.formats.replace import replace
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.people.directory import DevelopmentDirectory, FixedDirectory
from signoff.people.eligibility import ApproverSpec
from signoff.people.voter_set import VoterSet
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.hooks import HookContext, Permission
from signoff.registry.tool import Tool
from signoff.store.questions.answers import Answers
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import Questions
from signoff.store.store import Store
from signoff.testing.builders import a_person
from signoff.testing.questions import answer
from signoff.testing.scripted_model import calls, respond

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SIGNER = Signer(PrivateKeys(keys=(new_key(NOW - timedelta(days=9)),)))
AGAIN = "an approver of this may not decide it now"
TWO = ApprovalPolicy(quorum=2)


def lends(*to: str, until: datetime = NOW) -> tuple[Delegation, ...]:
    return tuple(Delegation(to=each, until=until) for each in to)


PEOPLE = {
    person.id: person
    for person in (
        Person(id="guest", delegations=lends("di")),
        a_person("ana", delegations=lends("bo", "cy")),
        a_person("al", delegations=lends("bo")),
        a_person("eve"),
        *(Person(id=name) for name in ("bo", "cy", "di", "cfo")),
    )
}


def without(name: str, **fields: Any) -> dict[str, Person]:
    return PEOPLE | {name: replace(PEOPLE[name], **fields)}


def approval_by(subject: str, **fields: Any) -> Decision:
    return decision(**{"received_at": NOW - HOUR, "assurance": "session", "subject": subject} | fields)


def signed(decision: Decision, request: ApprovalRequest) -> Decision:
    return SIGNER.sign_decision(replace(decision, revision=request.revision, question_hash=request.question_hash))


async def tried(
    store: Store,
    policy: ApprovalPolicy,
    *stored: Decision,
    raw: tuple[Decision, ...] = (),
    doubts: tuple[Decision, ...] = (),
    people: dict[str, Person] = PEOPLE,
    profile: Profile = "production",
    before: ApprovalPolicy | None = None,
    ticket: int = 1,
) -> tuple[ToolReply, Ledger]:
    """`raw` are stored unsigned answers. `doubts` are decisions about a first attempt with unknown outcome. `before` is
    the policy of the question.
    """
    ledger = Ledger()

    def deps_with(rules: ApprovalPolicy) -> tuple[WorkerDeps, Tool]:
        tool = pay_tool(ledger, rules)
        deps = worker_deps(store, tool, profile=profile)
        return dataclasses.replace(deps, people=FixedDirectory(people.values()), verifier=SIGNER.verifier()), tool

    ctx = pinned(user=signed_asker(SIGNER, GUEST, *TURN, at=NOW))
    deps, tool = deps_with(policy)
    old_deps, old_tool = deps_with(before or policy)
    rows = await Questions(store).read(decision().approval_id)
    if rows is not None:
        await Questions(store).end(decision().approval_id, rows.latest.revision, "superseded")
    request = await asked(old_deps, old_tool, ctx=ctx)
    for each in stored:
        await answer(store, signed(each, request))
    for each in raw:
        await answer(store, replace(each, revision=request.revision, question_hash=request.question_hash))
    task = task_for(tool, ctx=ctx, revision=request.revision)
    if ticket > 1:
        await store.claim(task.digest, workflow=TURN.workflow_id, call="c1.1", tool="pay")
        tried = await asked(old_deps, old_tool, ctx=ctx, doubt=1)
        for each in doubts:
            await answer(store, signed(each, tried))
    reply = await run(deps, tool, replace(task, ticket=ticket))
    return reply, ledger


async def outcome(store: Store, policy: ApprovalPolicy, *stored: Decision, **fields: Any) -> str:
    """`ok`: the call ran. `again`: the call must be asked again."""
    reply, ledger = await tried(store, policy, *stored, **fields)
    if not reply.again:
        assert reply.outcome is not None
        assert len(ledger.rows) == (reply.outcome.code == "ok")
        return reply.outcome.code
    assert (reply.again, reply.note) == ("policy", AGAIN)
    assert ledger.rows == []
    return "again"


@table(
    ("who", "found"),
    (("ana", "eve"), "ok"),
    (("ana", "bo"), "ok"),
    (("bo", "ana"), "ok"),
    (("cy", "bo"), "ok"),
    (("ana", "cy"), "again"),
    (("cy", "ana"), "again"),
    (("ana", "al", "bo"), "ok"),
)
async def test_two_approvals_need_two_seats(store: Store, who: tuple[str, ...], found: str) -> None:
    assert await outcome(store, TWO, *map(approval_by, who)) == found


async def test_all_delegates_of_one_approver_share_a_seat(store: Store) -> None:
    people = {"ana": a_person("ana", delegations=lends("bo", "cy", "di"))}
    people |= {name: Person(id=name) for name in ("guest", "bo", "cy", "di")}
    assert await outcome(store, TWO, *map(approval_by, ("bo", "cy", "di", "ana")), people=people) == "again"
    assert await outcome(store, ApprovalPolicy(), *map(approval_by, ("bo", "cy", "di", "ana")), people=people) == "ok"


@table(
    ("people", "found"),
    (PEOPLE, "ok"),
    (without("eve", active=False), "again"),
    (without("eve", roles=()), "again"),
    (without("eve", tenant="other"), "again"),
    ({name: person for name, person in PEOPLE.items() if name != "eve"}, "again"),
)
async def test_approver_who_left_since_does_not_count(store: Store, people: dict[str, Person], found: str) -> None:
    assert await outcome(store, ApprovalPolicy(), approval_by("eve"), people=people) == found


@table(
    ("who", "people", "found"),
    ("cfo", PEOPLE, "again"),
    ("nobody", PEOPLE, "again"),
    ("di", PEOPLE, "again"),
    (UNSIGNED, PEOPLE, "again"),
    ("bo", without("al", active=False) | {"ana": a_person("ana")}, "again"),
)
async def test_signature_alone_gives_no_seat(store: Store, who: str, people: dict[str, Person], found: str) -> None:
    assert await outcome(store, ApprovalPolicy(), approval_by(who), people=people) == found


async def test_additional_unknown_voter_does_not_block_enough_votes(store: Store) -> None:
    accepting = ApprovalPolicy(accept_unsigned=True, quorum=2)
    assert await outcome(store, accepting, approval_by("cfo"), approval_by("eve")) == "again"
    raw = (decision(subject="cfo"),)
    assert await outcome(store, accepting, approval_by("ana"), approval_by("eve"), raw=raw) == "ok"


@table(
    ("received_at", "found"),
    (NOW - HOUR, "ok"),
    (NOW - timedelta(seconds=1), "ok"),
    (NOW, "again"),
    (NOW + HOUR, "again"),
)
async def test_delegation_is_judged_at_the_time_of_receipt(
    store: Store, received_at: datetime | None, found: str
) -> None:
    assert await outcome(store, ApprovalPolicy(), approval_by("bo", received_at=received_at)) == found


async def test_unsigned_time_gives_no_seat_by_delegation(store: Store) -> None:
    late = (decision(subject="bo", received_at=NOW - HOUR),)
    assert await outcome(store, ApprovalPolicy(), raw=late, profile="development") == "again"
    lasting = PEOPLE | {"al": a_person("al", delegations=lends("bo", until=datetime.max.replace(tzinfo=UTC)))}
    assert await outcome(store, ApprovalPolicy(), raw=late, people=lasting, profile="development") == "ok"


NOBODY = decision(subject=UNSIGNED)


@table(
    ("raw", "stored", "found"),
    ((NOBODY,), (), "refused"),
    ((NOBODY, decision(subject=UNSIGNED, delivery_id="d2")), (), "refused"),
    ((NOBODY,), (approval_by("eve"),), "ok"),
    ((NOBODY,), (approval_by("cfo"),), "again"),
)
async def test_answers_without_a_subject_count_as_one(
    store: Store, raw: tuple[Decision, ...], stored: tuple[Decision, ...], found: str
) -> None:
    accepting = ApprovalPolicy(accept_unsigned=True, quorum=2)
    assert await outcome(store, accepting, *stored, raw=raw) == found


@table(
    ("policy", "who", "found"),
    (ApprovalPolicy(approvers=("user:cfo",)), "cfo", "ok"),
    (ApprovalPolicy(approvers=("user:cfo",)), "eve", "again"),
    (ApprovalPolicy(escalate_to=("user:cfo",), escalate_after=60), "cfo", "again"),
    (ApprovalPolicy(escalate_to=("user:cfo",), escalate_after=60), "eve", "ok"),
    (ApprovalPolicy(escalate_to=("user:cfo",), escalate_after=60), "di", "again"),
    (ApprovalPolicy(route_to="args.amount > 10 ? ['user:cfo'] : ['role:approvers']"), "cfo", "ok"),
    (ApprovalPolicy(route_to="args.amount > 10 ? ['user:cfo'] : ['role:approvers']"), "eve", "again"),
)
async def test_present_policy_decides_the_approvers(store: Store, policy: ApprovalPolicy, who: str, found: str) -> None:
    assert await outcome(store, policy, approval_by(who)) == found


@table(("who", "code"), ("eve", "ok"), ("bo", "ok"), ("cfo", "refused"), ("guest", "refused"))
async def test_only_entitled_approvers_permit_the_next_ticket(store: Store, who: str, code: str) -> None:
    assert await outcome(store, ApprovalPolicy(), approval_by("eve"), doubts=(approval_by(who),), ticket=2) == code


@table(("two", "code"), (("ana", "cy"), "refused"), (("cy", "eve"), "ok"))
async def test_second_ticket_needs_as_many_seats_as_the_first(store: Store, two: tuple[str, str], code: str) -> None:
    doubts = tuple(map(approval_by, two))
    assert await outcome(store, TWO, approval_by("ana"), approval_by("eve"), doubts=doubts, ticket=2) == code


@table(("quorum", "code"), (1, "ok"), (2, "refused"))
async def test_second_ticket_needs_the_quorum_of_the_question(store: Store, quorum: int, code: str) -> None:
    before = ApprovalPolicy(quorum=quorum)
    votes = (approval_by("ana"), approval_by("eve"))
    found = await outcome(store, ApprovalPolicy(), *votes, before=before, doubts=(approval_by("eve"),), ticket=2)
    assert found == code


@table(("now", "found"), (("user:cfo",), "again"), (("user:cfo", "role:approvers"), "ok"))
async def test_voter_must_be_an_approver_then_and_now(store: Store, now: tuple[str, ...], found: str) -> None:
    before, present = ApprovalPolicy(), ApprovalPolicy(approvers=now)
    assert await outcome(store, present, approval_by("cfo"), before=before) == "again"
    reply, _ = await tried(store, present, approval_by("eve"), before=before)
    assert (reply.again and "again") or (reply.outcome and reply.outcome.code) == found


@table(("late", "found"), (-1.0, "again"), (1.0, "ok"))
async def test_escalation_approver_has_a_seat_after_the_escalation(store: Store, late: float, found: str) -> None:
    escalating = ApprovalPolicy(escalate_to=("user:cfo",), escalate_after=60.0)
    since = datetime.now(UTC) + timedelta(seconds=60)
    early = approval_by("cfo", received_at=since + timedelta(seconds=30 * late))
    assert await outcome(store, escalating, early) == found


@table(("seconds", "found"), (90, "again"), (3_690, "ok"))
async def test_escalation_delayed_by_the_present_policy_gives_no_earlier_seat(
    store: Store, seconds: int, found: str
) -> None:
    before, present = (ApprovalPolicy(escalate_to=("user:cfo",), escalate_after=span) for span in (60.0, 3_600.0))
    given = approval_by("cfo", received_at=datetime.now(UTC) + timedelta(seconds=seconds))
    assert await outcome(store, present, given, before=before) == found


async def test_approval_voided_during_judgement_runs_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, answers, voided = Ledger(), Answers(store), []
    was_read, rows_of = asyncio.Event(), RunRights._approval_rows

    async def rows_once_read(self: RunRights, task: RunTask) -> ApprovalRows | None:
        rows = await rows_of(self, task)
        was_read.set()
        return rows

    monkeypatch.setattr(RunRights, "_approval_rows", rows_once_read)

    async def check(args: dict[str, Any], context: HookContext) -> Permission:
        if task.revision is not None:
            # It runs concurrently with the reading of the rows.
            await was_read.wait()
            voided.append(await answers.void(request.id, approval_by("eve").delivery_id))
        return Permission.allow()

    tool = pay_tool(ledger, TWO, check_permissions=check)
    deps = dataclasses.replace(
        worker_deps(store, tool, profile="production"),
        people=FixedDirectory(PEOPLE.values()),
        verifier=SIGNER.verifier(),
    )
    ctx = pinned(user=signed_asker(SIGNER, GUEST, *TURN, at=NOW))
    task = task_for(tool, ctx=ctx)
    request = await asked(deps, tool, ctx=ctx)
    for name in ("ana", "eve"):
        await answer(store, signed(approval_by(name), request))
    task = task_for(tool, ctx=ctx, revision=1)
    reply = await run(deps, tool, task)
    assert (voided, reply.again, ledger.rows) == ([True], "stale", [])


SILENCE: dict[str, Any] = {"escalate_to": ("role:approvers",), "escalate_after": 60.0}
GROUPS = ({"of": "user:cfo"}, {"of": "user:al"})


@table(
    ("before", "present"),
    (None, ApprovalPolicy.model_validate(SILENCE | {"terms": [{"when": "true", "approvers": ["user:cfo"]}]})),
    (ApprovalPolicy(quorum=2, **SILENCE), ApprovalPolicy.model_validate(SILENCE | {"approvers": GROUPS})),
)
async def test_first_approvers_fill_no_group_as_if_escalated(
    store: Store, before: ApprovalPolicy | None, present: ApprovalPolicy
) -> None:
    assert await outcome(store, present, approval_by("ana"), approval_by("eve"), before=before) == "again"


def test_each_person_takes_one_seat() -> None:
    def proved(who: str, **fields: Any) -> Decision:
        return SIGNER.sign_decision(approval_by(who, **fields))

    table = ApproverSpec("main", Terms(approvers=("role:approvers",)), "guest", False)
    seats = VoterSet(FixedDirectory(PEOPLE.values()), (table,), NOW)
    assert seats.count(()) == 0
    assert seats.count((proved("bo"), proved("bo", delivery_id="d2"))) == 1
    assert seats.count((proved("eve"), proved("eve", delivery_id="d2"))) == 1
    assert seats.count((proved("bo"), proved("cy"), proved("ana"), proved("al"))) == 2


@table(
    ("who", "suffices"),
    (("bo", "cy"), True),
    (("bo",), False),
    (("bo", "ana"), False),
    (("cy", "ana"), False),
    (("cy",), False),
    (("bo", "eve"), False),
)
def test_run_requires_the_added_approver_and_drops_the_giver(who: tuple[str, ...], *, suffices: bool) -> None:
    def made(verdict: Verdict, by: str, to: str) -> Vote:
        return Vote(subject=by, verdict=verdict, at=NOW, decision=approval_by(by, verdict=verdict, to=to))

    tool = pay_tool(Ledger(), ApprovalPolicy(approvers=("user:ana", "user:bo", "user:cy")))
    people = FixedDirectory(
        (a_person("ana"), a_person("bo"), a_person("cy", delegations=lends("eve")), a_person("eve"))
    )
    assignments = (made("handed_on", "ana", "bo"), made("added", "bo", "cy"))
    catalog = catalog_of([tool])
    terms = catalog.terms(tool.activity)
    found = voter_set(catalog, people, pinned(), tool.activity, terms, NOW, (), assignments)
    assert found.suffices([SIGNER.sign_decision(approval_by(each)) for each in who]) is suffices


async def test_accounts_of_one_person_share_a_seat_at_run_time(store: Store) -> None:
    people = PEOPLE | {
        "adm": a_person("adm", person_id="ana", delegations=lends("eve")),
        "guest-2": a_person("guest-2", person_id="guest", delegations=lends("di")),
        "al": a_person("al", delegations=lends("guest-2", "adm")),
    }
    for who in (("ana", "adm"), ("adm", "bo"), ("guest-2", "al"), ("di", "al")):
        assert await outcome(store, TWO, *map(approval_by, who), people=people) == "again"


async def test_approver_who_leaves_before_the_last_vote_is_replaced(turn_rig: TurnRig, ledger: Ledger) -> None:
    catalog = catalog_of([pay_tool(ledger, TWO)])
    people = DevelopmentDirectory(FixedDirectory([a_person("ana"), a_person("eve")]))
    script = [calls(("pay", {"amount": 20})), respond("done")]
    async with turn_rig.running(catalog, script, people=people) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key, subject="ana"))
        people.declared = FixedDirectory([a_person("ana", active=False), a_person("eve")])
        await turns.signoff.decide(yes(key, subject="eve"))
        asked = await turns.until(key, lambda view: view.calls[0].approval.revision == 2)
        assert ledger.rows == []
        assert asked.calls[0].approval.card.note == "an earlier approval was not used"
        for who in ("approver", "eve"):
            await turns.signoff.decide(yes(key, subject=who, revision=2))
        result = await turns.signoff.result(key)
    assert [call.code for call in result.calls] == ["ok"]
    assert len(ledger.rows) == 1


BOTH = ApprovalPolicy.model_validate({"approvers": [{"of": "role:finance"}, {"of": "role:legal"}]})
OFFICE = {
    person.id: person
    for person in (
        Person(id="guest"),
        *(Person(id=name, roles=("finance",), delegations=lends("di")) for name in ("fay", "finn")),
        Person(id="lea", roles=("legal",), delegations=lends("di")),
        Person(id="flo", roles=("finance", "legal")),
        *(Person(id=name) for name in ("di", "cfo")),
    )
}


@table(
    ("people", "found"),
    (("fay",), "again"),
    (("fay", "finn"), "again"),
    (("flo",), "again"),
    (("fay", "lea"), "ok"),
    (("fay", "flo"), "ok"),
    (("fay", "finn", "di"), "ok"),
    (("lea", "di"), "ok"),
    (("fay", "cfo"), "again"),
)
async def test_each_group_needs_a_different_person(store: Store, people: tuple[str, ...], found: str) -> None:
    reply, ledger = await tried(store, BOTH, *(approval_by(each) for each in people), people=OFFICE)
    ran = reply.outcome is not None and reply.outcome.code == "ok"
    assert (ran, len(ledger.rows)) == ((found == "ok"), int(found == "ok"))


@table(
    ("before", "now", "people", "found"),
    (ApprovalPolicy(quorum=2, approvers=("role:finance", "role:legal")), BOTH, ("fay", "finn"), "again"),
    (ApprovalPolicy(quorum=2, approvers=("role:finance", "role:legal")), BOTH, ("fay", "lea"), "ok"),
    (BOTH, ApprovalPolicy(quorum=2, approvers=("role:finance", "role:legal")), ("fay", "finn"), "again"),
    (BOTH, ApprovalPolicy(quorum=2, approvers=("role:finance", "role:legal")), ("fay", "lea"), "ok"),
)
async def test_groups_of_question_and_present_policy_both_apply(
    store: Store, before: ApprovalPolicy, now: ApprovalPolicy, people: tuple[str, ...], found: str
) -> None:
    given = [approval_by(each) for each in people]
    assert await outcome(store, now, *given, people=OFFICE, before=before) == found


async def test_escalation_approver_fills_one_group(store: Store) -> None:
    since = datetime.now(UTC) + timedelta(seconds=60)
    policy = replace(BOTH, escalate_to=("user:cfo",), escalate_after=60.0)
    for late, found in ((-30, "again"), (30, "ok")):
        given = approval_by("cfo", received_at=since + timedelta(seconds=late)), approval_by("fay")
        assert await outcome(store, policy, *given, people=OFFICE) == found


@table(
    ("term", "note"),
    ({"when": "args.amount > 10", "quorum": 2}, "more people have to approve this now"),
    ({"when": "args.amount > 10", "approvers": ["user:cfo"]}, "more people have to approve this now"),
    ({"when": "args.amount > 10", "min_assurance": "mfa"}, "this needs a stronger sign-in now"),
    ({"when": "args.amount > 10", "timeout": 60}, "it has to be approved sooner now"),
    ({"when": "args.amount > 100", "quorum": 2}, ""),
)
async def test_terms_deployed_after_the_question_apply_at_run_time(
    store: Store, term: dict[str, Any], note: str
) -> None:
    now = ApprovalPolicy.model_validate({"terms": [term]})
    late = datetime.now(UTC) + timedelta(minutes=5)
    yes = approval_by("eve", received_at=late)
    reply, ledger = await tried(store, now, yes, before=ApprovalPolicy())
    assert (reply.again, reply.note) == (("policy", note) if note else ("", ""))
    assert len(ledger.rows) == (0 if note else 1)


async def test_terms_of_the_question_apply_even_if_the_policy_dropped_them(store: Store) -> None:
    before = ApprovalPolicy.model_validate({"terms": [{"when": "args.amount > 10", "quorum": 2}]})
    reply, ledger = await tried(store, ApprovalPolicy(), approval_by("eve"), before=before)
    assert (reply.outcome is not None and reply.outcome.code, ledger.rows) == ("refused", [])
    assert await outcome(store, ApprovalPolicy(), approval_by("eve"), approval_by("ana"), before=before) == "ok"
