import asyncio
import dataclasses
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activity_kit import (
    ARGS,
    TURN,
    about,
    asked,
    decision,
    environment,
    pinned,
    request_of,
    run,
    sent,
    summary,
    task_for,
    worker_deps,
)
from some import some
from sqlalchemy import update
from tables import table
from turn_fixtures import GUEST, Ledger, pay_tool

from signoff.activities import grant_use
from signoff.activities.answers_activity import AnswersActivity
from signoff.activities.gate_activity import GateActivity, settled_outcome
from signoff.activities.grant_use import GrantUse, by_grant, frozen_decision
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.audit_events import admin_stream, fingerprint
from signoff.approvals.grant_rules import exact_digest, grant_id
from signoff.audit.log import AuditLog
from signoff.contracts.activity_messages import AnswersReply, AnswersTask, Authority, GateDecision, GateTask, Tally
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import DEFAULT_DENIAL, REQUIRES_APPROVAL, CallOutcome, RuleReference, ToolDenied
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision, GrantRequest
from signoff.contracts.grant import Grant, GrantScope
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.message import CallPart
from signoff.contracts.person import Person, Principal
from signoff.formats.replace import replace
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.people.login import id_from_login
from signoff.people.vouched_directory import vouch
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.policy.grant_predicate import compile_where
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.gates.pipeline import judge
from signoff.registry.manifest.on_call_sections import OnCallRota
from signoff.registry.registry import definition_hash
from signoff.registry.tool import Tool
from signoff.store.grants import Grants
from signoff.store.questions.questions import Questions
from signoff.store.store import Store
from signoff.store.tables import GRANTS, QUESTIONS
from signoff.store.vouched_people import vouched_writer
from signoff.testing.builders import a_grant, a_person
from signoff.testing.questions import answer

SMALL = GrantRequest(scope="tenant", where="args.amount <= 50.0")
ALLOWED = ApprovalPolicy(allow_remember=True)
ID = ApprovalKey(TURN, "c1.1").id
CALL = CallPart(call="c1.1", tool="pay", args=Content(inline=ARGS))
HOUR = timedelta(hours=1)
NOW = datetime.now(UTC).replace(microsecond=0)
ASKED = NOW - timedelta(minutes=1)
"""The time of the answer by the gateway's clock, before the write to the store."""
SIGNER = Signer(PrivateKeys(keys=(new_key(NOW - 24 * HOUR),)))
APPROVERS = (a_person("approver"), a_person("ana"))


def deps_with(store: Store, *tools: Tool, **fields: Any) -> WorkerDeps:
    return dataclasses.replace(worker_deps(store, *tools, **fields), verifier=SIGNER.verifier())


def asking(ledger: Ledger, policy: ApprovalPolicy = ALLOWED, **fields: Any) -> Tool:
    return pay_tool(ledger, policy, **fields)


async def approved(deps: WorkerDeps, tool: Tool, *decisions: Decision, **fields: Any) -> None:
    request = await asked(deps, tool)
    answers = [replace(each, question_hash=request.question_hash) for each in decisions]
    rows = await Questions(deps.store).read(request.id)
    for each in answers if rows is not None and not rows.answers else ():
        await answer(deps.store, each)
    task = task_for(tool, **{"revision": 1} | fields)
    assert summary(await run(deps, tool, task))[0] == "ok"


async def ruled(deps: WorkerDeps, args: Any = None, **ctx: Any) -> GateDecision:
    pin = pinned(**({"turn": "next"} | ctx))
    env = environment("signoff.gate", is_local=True, workflow_id=f"turn/{pin.tenant}/{pin.session}/{pin.turn}")
    call = CallPart(call="c1.1", tool="pay", args=Content(inline=args or ARGS))
    reply = await env.run(GateActivity(deps).gate, GateTask(ctx=pin, calls=(call,)))
    return sent(reply).gate_decisions[0]


async def kept(store: Store) -> list[Grant]:
    return await Grants(store).all("main", every=True)


async def question(deps: WorkerDeps) -> ApprovalRequest:
    return request_of((await ruled(deps, turn=TURN.turn)).request)


async def denied(deps: WorkerDeps, request: ApprovalRequest, **fields: Any) -> AnswersReply:
    given = {"verdict": "denied", "assurance": "session", "received_at": ASKED, **fields}
    signs = given.pop("signed", True)
    said_so = about(request, **given)
    if signs:
        said_so = SIGNER.sign_decision(said_so)
        rows = await Questions(deps.store).read(request.id)
        if rows is not None and not rows.answers:
            found = Authority(allowed=True, subject="approver", assurance="session", received_at=ASKED)
            await answer(deps.store, said_so, authority=found)
    task = AnswersTask(approval=request.id, revision=request.revision, raw=said_so)
    return await environment("signoff.answers", is_local=True).run(AnswersActivity(deps).read_answers, task)


async def given(deps: WorkerDeps, tool: Tool, turn: str, wish: GrantRequest, **fields: Any) -> str:
    """The answer was to a call of another turn."""
    request = await asked(deps, tool, ctx=pinned(turn=turn))
    await answer(deps.store, about(request, approval_id=request.id, remember=wish, **fields))
    return grant_id(request.id, 1, fields.get("verdict", "approved"))


def judged(deps: WorkerDeps) -> JudgedCall:
    return judge(deps.catalog, pinned(turn="next"), CALL, ARGS, Tally())


def expected(tool: Tool, deps: WorkerDeps, verdict: Any, wish: GrantRequest, **fields: Any) -> Grant:
    like = GrantScope(
        tenant="main",
        actor="desk",
        session="s" if wish.scope == "session" else "",
        tool="pay",
        definition=definition_hash(tool),
        exact="" if wish.where else exact_digest("pay", definition_hash(tool), ARGS),
        where=wish.where,
        rule=REQUIRES_APPROVAL,
        policy_hash=deps.catalog.policy("pay").hash,
    )
    given: dict[str, Any] = {
        "id": grant_id(ID, 1, verdict),
        "verdict": verdict,
        "like": like,
        "people": ("approver",),
        "reason": "go on",
        "approval_id": ID,
        "created_at": NOW,
        "expires_at": ASKED + timedelta(seconds=wish.seconds),
        "uses": wish.uses,
        "uses_left": wish.uses,
    }
    return a_grant(**given | fields)


async def recorded(store: Store, grant: Grant, wish: GrantRequest) -> None:
    (record,) = await AuditLog(store).stream(admin_stream("main"))
    assert (record.kind, record.key, record.subject) == ("grant", f"remember/{grant.id}", grant.people[-1])
    assert record.facts == {
        "act": "remember",
        "grant": grant.id,
        "verdict": grant.verdict,
        "people": list(grant.people),
        "approval": ID,
        "tool": "pay",
        "like": fingerprint(grant.like.model_dump()),
        "uses": wish.uses,
        "seconds": wish.seconds,
        **({"session": "s"} if wish.scope == "session" else {}),
    }


WISHES = (GrantRequest(seconds=7_200, uses=3), replace(SMALL, seconds=60.0, uses=2))


@table("wish", *WISHES)
async def test_approval_stores_one_grant_with_all_requested_fields(store: Store, wish: GrantRequest) -> None:
    tool = asking(Ledger())
    deps = deps_with(store, tool)
    for _ in range(2):
        await approved(deps, tool, decision(remember=wish, received_at=ASKED))
    (grant,) = await kept(store)
    assert grant.created_at >= NOW
    assert grant == expected(tool, deps, "approved", wish, created_at=grant.created_at)
    await recorded(store, grant, wish)


async def test_grant_request_known_only_from_the_turn_is_ignored(store: Store) -> None:
    # The call is approved without a grant request.
    tool = asking(Ledger())
    deps = deps_with(store, tool)
    await approved(deps, tool, decision())
    assert await kept(store) == []


@table("wish", *WISHES)
async def test_denial_stores_one_grant_with_all_requested_fields(store: Store, wish: GrantRequest) -> None:
    tool = asking(Ledger())
    deps = deps_with(store, tool)
    request = await question(deps)
    for _ in range(2):
        found = await denied(deps, request, remember=wish, reason="too expensive")
        assert (some(found.receipt).status, found.settlement.decided_by) == ("accepted", "approver")
    (grant,) = await kept(store)
    assert grant == expected(tool, deps, "denied", wish, reason="too expensive", created_at=grant.created_at)
    await recorded(store, grant, wish)


async def test_denial_without_a_grant_request_stores_no_grant(store: Store) -> None:
    deps = deps_with(store, asking(Ledger()))
    assert some((await denied(deps, await question(deps))).receipt).status == "accepted"
    assert (await kept(store), (await ruled(deps)).kind) == ([], "ask")


@table("reason", "too expensive", "")
async def test_denial_grant_settles_the_next_call_and_names_the_first(store: Store, reason: str) -> None:
    deps = deps_with(store, asking(Ledger()))
    await denied(deps, await question(deps), remember=WISHES[0], reason=reason)
    (grant,) = await kept(store)
    repeated = ToolDenied(
        source="repeat",
        approval_id=ID,
        tool="pay",
        call_id="c1.1",
        decided_by="approver",
        reason=reason,
        decided_at=grant.created_at,
    )
    outcome = CallOutcome(
        call="c1.1",
        tool="pay",
        code="denied",
        gate="approval",
        value=Content(inline={**json.loads(repeated.model_dump_json()), "reason": reason or DEFAULT_DENIAL}),
        rule=REQUIRES_APPROVAL,
        denied=repeated,
    )
    for _ in range(2):
        gate_decision = await ruled(deps)
        assert (gate_decision.kind, gate_decision.request, gate_decision.outcome) == ("settled", None, outcome)
    assert [each.uses_left for each in await kept(store)] == [2]
    assert (await ruled(deps, {**ARGS, "amount": 21})).kind == "ask"
    for turn in ("third", "fourth"):
        assert (await ruled(deps, turn=turn)).kind == "settled"
    assert (await ruled(deps, turn="fifth")).kind == "ask"


async def test_denial_grant_settles_a_matching_call(store: Store) -> None:
    deps = deps_with(store, asking(Ledger()))
    await denied(deps, await question(deps), remember=WISHES[0])
    (grant,) = await kept(store)
    await Grants(store).revoke(grant.id, "main", by="ana")
    second = await given(deps, asking(Ledger()), "other", WISHES[0], verdict="denied", subject="ana", reason="no")
    found = judged(deps)
    ended = await GrantUse(deps).apply_grant(pinned(turn="next"), CALL, ARGS, found)
    assert ended.outcome is not None
    assert ended.outcome.denied is not None
    assert (ended.outcome.denied.approval_id, ended.outcome.denied.decided_by) == ("main.s.other.c1.1", "ana")
    assert ended == found.deny(ended.outcome.denied).decide(grant=second)
    assert (ended.kind, ended.gate, ended.code, ended.message) == ("settled", "approval", "denied", "no")
    assert settled_outcome(ended).value.inline == json.loads(ended.outcome.denied.model_dump_json())


def test_approval_grant_runs_a_matching_call(store: Store) -> None:
    tool = asking(Ledger())
    deps = deps_with(store, tool)
    until = datetime(2026, 3, 1, 12, 5, 59, tzinfo=UTC)
    grant = expected(tool, deps, "approved", SMALL, people=("ana", "bo"), expires_at=until)
    found = judged(deps)
    assert found.verdict is not None
    verdict = dataclasses.replace(
        found.verdict,
        verdict="auto",
        rule=RuleReference(kind="grant", name=grant.id),
        rule_text=SMALL.where,
        reasons=("ana, bo approved calls like this in advance, until 2026-03-01 12:05 UTC",),
    )
    assert by_grant(found, grant) == found.decide(kind="run", grant=grant.id)._replace(verdict=verdict)
    unknown = found._replace(verdict=None)
    assert by_grant(unknown, grant) == unknown


def test_freeze_settles_a_call_as_denied(store: Store) -> None:
    found = judged(deps_with(store, asking(Ledger())))
    reason = "frozen: drill"
    ended = frozen_decision(found, "drill", CALL)
    told_so = ToolDenied(source="policy", tool="pay", call_id="c1.1", reason=reason)
    assert ended == found.deny(told_so)
    assert (ended.kind, ended.gate, ended.code, ended.message) == ("settled", "approval", "denied", reason)
    assert frozen_decision(ended, "again", CALL) is ended


async def test_answer_that_bypassed_the_gateway_gives_no_grant(store: Store) -> None:
    tool = asking(Ledger(), ApprovalPolicy(allow_remember=True, accept_unsigned=True, min_assurance="none"))
    request = await question(deps_with(store, tool, people=APPROVERS))
    deps = deps_with(store, tool, people=APPROVERS, profile="production")
    why = "`remember`: only an answer given through the gateway is remembered"
    found = await denied(deps, request, remember=WISHES[0], signed=False)
    assert (some(found.receipt).code, some(found.receipt).message) == ("malformed", why)
    assert await kept(store) == []
    assert some((await denied(deps, request, remember=WISHES[0])).receipt).status == "accepted"
    assert len(await kept(store)) == 1


async def test_grant_of_an_undeclared_approver_needs_a_valid_sign_in(store: Store) -> None:
    login = "https://login.example.com#7"
    cy = a_person(id_from_login(login), name="Cy", identities={"oidc": (login,)})
    tool = asking(Ledger())
    deps = deps_with(store, tool)
    grant = await given(deps, tool, "other", SMALL, subject=cy.id)
    assert (await ruled(deps, {"amount": 1})).kind == "ask"
    await store.run(vouched_writer(vouch(SIGNER, cy, names=(), now=NOW, lifetime=24 * HOUR)))
    assert (await ruled(deps, {"amount": 1}, turn="another")).grant == grant


async def test_matching_next_call_runs_by_the_grant(store: Store) -> None:
    tool = asking(Ledger())
    deps = deps_with(store, tool)
    await approved(deps, tool, decision(remember=SMALL))
    (grant,) = await kept(store)
    gate_decision = await ruled(deps, {"amount": 50}, session="other")
    assert (gate_decision.kind, gate_decision.grant, gate_decision.rule) == (
        "run",
        grant.id,
        RuleReference(kind="grant", name=grant.id),
    )
    assert (await ruled(deps, {"amount": 51})).kind == "ask"
    assert (await ruled(deps, {"amount": 50}, tenant="other")).kind == "ask"


async def test_unreadable_denial_grant_blocks_all_approval_grants(store: Store) -> None:
    # People are asked, whether the gates look for an answer or a turn names one: it may say no. Seen to fail every call
    # of the tool while a rule that is no record raised.
    tool = asking(Ledger())
    deps = deps_with(store, tool, people=APPROVERS)
    yes = await given(deps, tool, "first", SMALL)
    assert (await ruled(deps)).grant == yes
    no = await given(deps, tool, "other", SMALL, verdict="denied", subject="ana")
    change = update(GRANTS).where(GRANTS.c.id == no).values(rule="requires_approval")
    await store.run(lambda connection: connection.execute(change).close())
    assert ((await ruled(deps)).kind, (await ruled(deps)).grant) == ("ask", "")
    found = await GrantUse(deps).holds(yes, pinned(turn="next"), CALL, ARGS, judged(deps))
    assert (found.kind, found.decision.grant) == ("ask", "")
    assert [each.id for each in await kept(store)] == [yes]


async def test_predicates_of_all_grants_share_one_step_limit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = asking(Ledger())
    deps = deps_with(store, tool)
    for number in range(3):
        await given(deps, tool, f"t{number}", GrantRequest(scope="tenant", where=f"args.amount <= {20 + number}.0"))
    assert len(await kept(store)) == 3
    assert (await ruled(deps, {"amount": 22})).kind == "run"
    steps = compile_where("args.amount <= 20.0", deps.catalog.policy("pay")).steps({"amount": 22})
    monkeypatch.setattr(grant_use, "PREDICATES_STEPS", 3 * steps)
    assert (await ruled(deps, {"amount": 22})).kind == "run"
    monkeypatch.setattr(grant_use, "PREDICATES_STEPS", 3 * steps - 1)
    assert (await ruled(deps, {"amount": 22})).kind == "ask"


async def test_plain_grant_covers_exact_arguments_in_one_session(store: Store) -> None:
    tool = asking(Ledger())
    deps = deps_with(store, tool)
    await approved(deps, tool, decision(remember=GrantRequest()))
    assert (await ruled(deps)).kind == "run"
    assert (await ruled(deps, {**ARGS, "amount": 20.0})).kind == "run"
    assert (await ruled(deps, {**ARGS, "to": "Bo"})).kind == "ask"
    assert (await ruled(deps, session="other")).kind == "ask"


@table(
    "change",
    {"policy": ApprovalPolicy(allow_remember=False)},
    {"policy": ApprovalPolicy(allow_remember=True, quorum=2)},
    {"policy": ApprovalPolicy(allow_remember=True, min_assurance="mfa")},
    {"policy": ApprovalPolicy(allow_remember=True, require_approval_if="true")},
    {"version": "2"},
    {"people": (a_person("approver", active=False),)},
    {"policies": [GlobalRule(name="house", rule="true", effect="deny")]},
)
async def test_grant_does_not_cover_a_changed_question(store: Store, change: dict[str, Any]) -> None:
    tool = asking(Ledger())
    await approved(deps_with(store, tool), tool, decision(remember=SMALL))
    more = {name: change[name] for name in ("people", "policies") if name in change}
    fields = {name: value for name, value in change.items() if name not in more}
    later = deps_with(store, asking(Ledger(), **fields), **more)
    assert (await ruled(later)).kind != "run"


@table(
    ("term", "verdict"),
    ({"quorum": 2}, "ask"),
    ({"approvers": ["user:ana"]}, "ask"),
    ({"min_assurance": "mfa"}, "ask"),
    ({"timeout": 60}, "ask"),
    ({"escalate_after": 60}, "run"),
)
async def test_grant_covers_only_calls_on_no_stricter_terms(store: Store, term: dict[str, Any], verdict: str) -> None:
    """A grant of one approver for 20 does not cover 50, for which two approvers would be asked."""
    policy = ApprovalPolicy.model_validate(
        {
            "allow_remember": True,
            "escalate_to": ["user:cfo"],
            "escalate_after": 3_600,
            "terms": [{"when": "args.amount > 30", **term}],
        }
    )
    tool = asking(Ledger(), policy)
    deps = deps_with(store, tool, people=(*APPROVERS, Person(id="cfo")))
    await approved(deps, tool, decision(remember=SMALL))
    assert (await ruled(deps, {"amount": 30})).kind == "run"
    assert (await ruled(deps, {"amount": 50}, turn="another")).kind == verdict


async def test_approver_cannot_use_their_own_grant(store: Store) -> None:
    tool = asking(Ledger())
    deps = deps_with(store, tool, people=APPROVERS)
    await approved(deps, tool, decision(remember=SMALL))
    mine = Principal(user="approver", roles=("approvers",))
    assert (await ruled(deps, user=mine)).kind == "ask"
    assert (await ruled(deps, user=GUEST, turn="another")).kind == "run"


async def test_escalation_only_approver_gives_no_grant(store: Store) -> None:
    # Mal may answer one escalated question. The next calls ask the approvers of the policy. The next call ran
    # while the escalation of that question applied to it.
    tool = asking(Ledger(), ApprovalPolicy(allow_remember=True, escalate_after=0.01, escalate_to=("user:mal",)))
    deps = deps_with(store, tool, people=[*APPROVERS, Person(id="mal")])
    request = await asked(deps, tool)
    await asyncio.sleep(0.05)
    await answer(store, about(request, subject="mal", remember=SMALL))
    assert [grant.people for grant in await kept(store)] == [("mal",)]
    assert (await ruled(deps)).kind == "ask"
    await given(deps, tool, "another", SMALL)
    assert (await ruled(deps, turn="third")).kind == "run"


async def test_grant_of_a_person_on_call_runs_no_later_call(store: Store) -> None:
    tool = asking(Ledger(), ApprovalPolicy(allow_remember=True, approvers=("oncall:payments", "user:ana")))
    rota = OnCallRota("payments", ical="env:ROTA")
    deps = deps_with(store, tool, people=[Person(id="bo"), Person(id="ana")], on_call=[rota])
    shift: dict[str, Any] = {"on_call": ("oncall:payments",), "received_at": ASKED, "remember": SMALL}
    for person, turn, kind in (("bo", "first", "ask"), ("ana", "second", "run")):
        request = await asked(deps, tool, ctx=pinned(turn=turn))
        given = about(request, approval_id=request.id, subject=person, assurance="session", **shift)
        await answer(store, SIGNER.sign_decision(given))
        assert person in [name for grant in await kept(store) for name in grant.people]
        assert (await ruled(deps, turn=f"after-{turn}")).kind == kind


async def test_second_account_of_the_approver_cannot_use_the_grant(store: Store) -> None:
    """Otherwise a person with two accounts would approve their own calls."""
    tool = asking(Ledger())
    second = Person(id="second", person_id="approver")
    deps = deps_with(store, tool, people=[*APPROVERS, second])
    await approved(deps, tool, decision(remember=SMALL))
    assert (await ruled(deps, user=Principal(user="second", person_id="approver"))).kind == "ask"
    assert (await ruled(deps, user=GUEST, turn="another")).kind == "run"


async def test_grant_does_not_cover_a_requester_that_contradicts_the_directory(store: Store) -> None:
    tool = asking(Ledger())
    deps = deps_with(store, tool)
    await approved(deps, tool, decision(remember=SMALL))
    assert (await ruled(deps, user=Principal(user="guest", tier="gold"))).kind == "ask"


@table(
    ("second", "uses"),
    (None, None),
    (GrantRequest(scope="tenant", where="args.amount <= 60.0"), None),
    (replace(SMALL, scope="session"), None),
    (replace(SMALL, uses=7, seconds=60.0), 7),
)
async def test_quorum_must_request_the_same_grant(store: Store, second: GrantRequest | None, uses: int | None) -> None:
    tool = asking(Ledger(), ApprovalPolicy(allow_remember=True, quorum=2))
    deps = deps_with(store, tool, people=APPROVERS)
    await approved(deps, tool, decision(remember=SMALL), decision(subject="ana", remember=second))
    assert [(grant.people, grant.uses) for grant in await kept(store)] == (
        [] if uses is None else [(("approver", "ana"), uses)]
    )


async def test_permit_with_a_grant_that_does_not_apply_runs_nothing(store: Store, ledger: Ledger) -> None:
    tool = asking(ledger)
    deps = deps_with(store, tool)
    await approved(deps, tool, decision(remember=SMALL))
    (grant,) = await kept(store)
    ledger.rows.clear()
    ctx = pinned(turn="next")
    env = {"workflow_id": f"turn/main/{TURN.session}/next"}

    async def attempt(name: str, args: dict[str, Any]) -> str:
        task = task_for(tool, args, grant=name, ctx=ctx)
        reply = await run(deps, tool, task, environment(tool.name, **env))
        return reply.again or summary(reply)[0]

    assert await attempt("", {"amount": 1}) == "policy"
    assert await attempt("gnobody", {"amount": 1}) == "policy"
    assert await attempt(grant.id, {"amount": 51}) == "policy"
    await Grants(store).revoke(grant.id, "main", by="approver")
    assert await attempt(grant.id, {"amount": 1}) == "policy"
    assert ledger.rows == []


async def test_session_grant_covers_only_accounts_of_the_same_person(store: Store) -> None:
    # Another person who names the session is asked about, and another account of the same person is served.
    # Anyone was served while only the session's name was compared.
    tool = asking(Ledger())
    people = [*APPROVERS, Person(id="guest"), Person(id="second", person_id="guest"), Person(id="max")]
    deps = deps_with(store, tool, people=people)
    await approved(deps, tool, decision(remember=replace(SMALL, scope="session")))
    asking_people = (Principal(user="guest"), Principal(user="second", person_id="guest"), Principal(user="max"))
    verdicts = [(await ruled(deps, user=each)).kind for each in asking_people]
    assert verdicts == ["run", "run", "ask"]


async def test_session_grant_does_not_move_to_a_new_owner_of_an_account(store: Store) -> None:
    # Guest's account now belongs to Max, so a grant given for Guest in that session does not cover Max. Max was
    # served while only the present directory was used to find the owner.
    tool = asking(Ledger())
    then = [*APPROVERS, Person(id="guest"), Person(id="second", person_id="guest"), Person(id="max")]
    deps = deps_with(store, tool, people=then)
    wish = replace(SMALL, scope="session")
    request = await asked(deps, tool, ctx=pinned(turn="first", user=Principal(user="second", person_id="guest")))
    await answer(store, about(request, approval_id=request.id, remember=wish))
    asker = Principal(user="second", person_id="guest")
    assert (await ruled(deps, user=asker)).kind == "run"
    now = deps_with(store, tool, people=[*then[:3], Person(id="second", person_id="max"), Person(id="max")])
    assert (await ruled(now, user=Principal(user="second", person_id="max"), turn="later")).kind == "ask"
    assert (await ruled(now, user=Principal(user="guest"), turn="last")).kind == "ask"


INVENTED: dict[str, dict[str, Any]] = {
    "more uses": {"uses": 900},
    "more time": {"expires_at": 4_000_000_000_000},
    "another predicate": {"predicate": "true"},
    "everywhere": {"session": ""},
    "for somebody else": {"requester": "max"},
    "of somebody else": {"people": "ana"},
    "of an approval that nobody gave": {"approval_id": "main.s.never.c1.1"},
    "of another revision": {"id": "gother"},
    "an approval made of a denial": {"verdict": "denied"},
}


@table("name", *INVENTED)
async def test_forged_grant_row_without_its_answer_is_ignored(store: Store, name: str) -> None:
    tool = asking(Ledger())
    deps = deps_with(store, tool, people=[*APPROVERS, Person(id="guest"), Person(id="max")])
    await approved(deps, tool, decision(remember=replace(SMALL, scope="session")))
    user = Principal(user="guest")
    assert (await ruled(deps, user=user)).kind == "run"
    await store.run(lambda connection: connection.execute(update(GRANTS).values(**INVENTED[name])))
    assert (await ruled(deps, user=user)).kind == "ask"


@table(
    ("asker", "profile", "kind"),
    ({}, "development", "run"),
    ({"signature": "c2lnbmVk"}, "development", "ask"),
    ({"key_id": "k"}, "development", "ask"),
    ({"signature": "c2lnbmVk", "key_id": "k"}, "development", "ask"),
    ({}, "production", "ask"),
)
async def test_grant_needs_a_question_of_a_signed_requester(
    store: Store, asker: dict[str, str], profile: str, kind: str
) -> None:
    tool = asking(Ledger())
    deps = deps_with(store, tool)
    user = replace(GUEST, **asker)
    request = await asked(deps, tool, ctx=pinned(turn="first", user=user))
    assert request.requester == user
    await answer(store, about(request, approval_id=request.id, remember=SMALL))
    (grant,) = await kept(store)
    uses = GrantUse(dataclasses.replace(deps, profile=profile))
    found = await uses.holds(grant.id, pinned(turn="next"), CALL, ARGS, judged(deps))
    assert found.kind == kind


async def test_grant_is_ignored_if_its_question_claims_another_instant(store: Store) -> None:
    tool = asking(Ledger())
    deps = deps_with(store, tool)
    await given(deps, tool, "first", SMALL)
    assert (await ruled(deps)).kind == "run"
    rows = some(await Questions(store).read(ApprovalKey(TurnKey("main", "s", "first"), "c1.1").id))
    moved = replace(rows.latest, judged_at=NOW - timedelta(days=2))
    body = update(QUESTIONS).where(QUESTIONS.c.turn == "first").values(body=moved.model_dump_json())
    await store.run(lambda connection: connection.execute(body))
    assert (await ruled(deps, turn="later")).kind == "ask"


async def test_grant_is_ignored_if_its_answer_is_not_signed_as_stored(store: Store) -> None:
    tool = asking(Ledger())
    deps = deps_with(store, tool)
    request = await asked(deps, tool)
    signed = SIGNER.sign_decision(about(request, remember=replace(SMALL, uses=1), received_at=ASKED))
    await answer(store, replace(signed, remember=SMALL))
    assert (len(await kept(store)), (await ruled(deps)).kind) == (1, "ask")


async def test_read_only_tool_spends_its_grant_once(store: Store) -> None:
    tool = asking(Ledger(), read_only=True)
    deps = deps_with(store, tool)
    await approved(deps, tool, decision(remember=SMALL))
    (grant,) = await kept(store)
    task = task_for(tool, grant=grant.id, ctx=pinned(turn="next"))
    env = {"workflow_id": f"turn/main/{TURN.session}/next"}
    for _ in range(2):
        reply = await run(deps, tool, task, environment(tool.name, **env))
        assert summary(reply)[0] == "ok"
    assert (await kept(store))[0].uses_left == grant.uses - 1
