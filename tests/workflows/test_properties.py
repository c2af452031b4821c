import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from turn_fixtures import GUEST, Ledger, TurnRig, catalog_of, pay_tool, yes

from signoff.activities.run_rules import SignaturePolicy, approval_of, check_run, digest_of, voter_set
from signoff.approvals.machine import vote_of
from signoff.approvals.request_state import StoredAnswer
from signoff.contracts.activity_messages import Authority, RunTask, Tally
from signoff.contracts.call import CallContext
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.ids import TurnKey
from signoff.contracts.message import CallPart
from signoff.contracts.turn import TurnView
from signoff.keys.signatures import Verifier
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule, RequiresApproval
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.gates.pipeline import judge
from signoff.registry.registry import definition_hash
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.testing.builders import a_person, a_question, a_run_task
from signoff.testing.scripted_model import calls, respond

KEY = TurnKey("main", "s", "t")
CTX = CallContext(actor="desk", session="s", turn="t", tenant="main", user=GUEST)
NOW = datetime(2026, 3, 1, tzinfo=UTC)
ANA = a_person("ana")
NAMES = ("pay", "wire", "look")
POLICIES: tuple[RequiresApproval, ...] = (
    False,
    True,
    ApprovalPolicy(auto_approve_if="args.amount < 10.0"),
    ApprovalPolicy(auto_approve_if="args.amount < 10.0", quorum=2),
    ApprovalPolicy(deny_if="args.amount > 50.0"),
    ApprovalPolicy(auto_approve_if="args.amount < 10.0", require_approval_if="ctx.user.tier == 'standard'"),
)
RULES = (
    GlobalRule(name="hidden", rule="tool.name == 'wire'", effect="hide"),
    GlobalRule(name="denied", rule="tool.name == 'wire'", effect="deny"),
    GlobalRule(name="asked", rule="tool.name == 'look'", effect="require_approval"),
)


@dataclass(frozen=True)
class Plan:
    """One catalog by numbers: a policy for each tool (`None`: no such tool), the actor's list, the rules, the tools'
    version.
    """

    policies: tuple[int | None, ...]
    allowed: tuple[str, ...] | None
    rules: tuple[int, ...]
    version: str


@cache
def build(plan: Plan) -> Catalog:
    tools = [
        pay_tool(Ledger(), POLICIES[policy], name=name, version=plan.version)
        for name, policy in zip(NAMES, plan.policies, strict=True)
        if policy is not None
    ]
    there = {tool.name for tool in tools}
    allowed = None if plan.allowed is None else tuple(name for name in plan.allowed if name in there)
    actors = [Actor(name="desk", model="scripted", tools=allowed)]
    return catalog_of(tools, actors=actors, policies=[RULES[number] for number in plan.rules], people=[ANA])


plans = st.builds(
    Plan,
    policies=st.tuples(*[st.sampled_from((None, *range(len(POLICIES)), *range(len(POLICIES))))] * 3),
    allowed=st.sampled_from((None, None, NAMES, ("pay",), ("look", "wire"), ())),
    rules=st.sampled_from(((), (), (0,), (1,), (2,))),
    version=st.sampled_from(("1", "2")),
)
proposals = st.tuples(
    st.sampled_from((*NAMES * 4, "PAY", "pay ", "respond", "transfer", "")),
    st.sampled_from([*({"amount": n} for n in (1, 9.99, 10, 51, 1, 20, 30, "1", None)), {}, {"amount": 1, "extra": 1}]),
)
sound = st.builds(yes, st.just(KEY), subject=st.sampled_from(("approver", "ana")))
decisions = sound | st.builds(
    yes,
    st.just(KEY),
    st.sampled_from(("c1.1", "c1.2")),
    verdict=st.sampled_from(("approved", "approved", "approved", "denied")),
    revision=st.sampled_from((None, 1, 2)),
    subject=st.sampled_from(("approver", "ana", "guest", "stranger", "")),
)


def offered(catalog: Catalog) -> set[str]:
    return {tool.name for tool in catalog.offered_tools("desk", CTX)}


def task_of(catalog: Catalog, tool: str, args: Any, revision: int | None) -> RunTask:
    found = catalog.registry.resolve(tool)
    assert found is not None
    return a_run_task(found, args, ctx=CTX, revision=revision)


def gates(catalog: Catalog, tool: str, args: Any) -> JudgedCall:
    return judge(catalog, CTX, CallPart(call="c1.1", tool=tool, args=Content(inline=args)), args, Tally())


def rows_of(
    catalog: Catalog, tool: str, args: Any, found: JudgedCall, votes: Sequence[Decision]
) -> ApprovalRows | None:
    present = catalog.registry.resolve(tool)
    if found.kind != "ask" or present is None:
        return None
    policy = catalog.policy(tool).policy or ApprovalPolicy()
    question = a_question(
        tenant=CTX.tenant,
        session=CTX.session,
        turn=CTX.turn,
        actor=CTX.actor,
        requester=CTX.user,
        tool=tool,
        definition=definition_hash(present),
        args=Content(inline=args),
        digest=digest_of(CTX, "c1.1", present, args),
        secrets=present.masked_arguments,
        show=policy.show.only,
        policy_hash=catalog.policy(tool).hash,
        approvers=catalog.approvers(tool, found.verdict),
        quorum=policy.quorum,
        opened_at=NOW,
    )
    answers = tuple(
        StoredAnswer(each.revision or 1, number, vote_of(each, Authority(allowed=True, subject=each.subject), NOW), NOW)
        for number, each in enumerate(votes, 1)
    )
    return ApprovalRows((question,), answers, NOW)


@pytest.mark.row("N02")
@settings(max_examples=150, deadline=None)
@given(
    before=plans,
    deployed=st.none() | plans,
    proposal=proposals,
    votes=st.lists(decisions, max_size=3),
    forged=st.booleans(),
)
def test_unoffered_tools_never_execute_and_gated_calls_need_decisions(
    before: Plan, deployed: Plan | None, proposal: tuple[str, Any], votes: list[Decision], forged: bool
) -> None:
    tool, args = proposal
    asked, runs = build(before), build(deployed or before)
    first = gates(asked, tool, args)
    if first.kind != "settled":
        assert tool in offered(asked)
    if first.kind == "settled" and (not forged or asked.registry.resolve(tool) is None or not isinstance(args, dict)):
        return
    task = task_of(asked, tool, args, None if first.kind == "run" or (forged and not votes) else 1)
    second = gates(runs, tool, args)
    present = runs.registry.resolve(tool)
    if second.kind == "settled" or present is None:
        return
    assert tool in offered(runs)
    digest = digest_of(CTX, "c1.1", present, args)
    rows = rows_of(asked, tool, args, first, votes)
    terms = runs.terms(tool, second.verdict)
    worth = check_run(
        task,
        digest,
        second,
        runs.policy(tool),
        terms,
        signature_policy=SignaturePolicy(Verifier(), development=True),
        voters=voter_set(runs, runs.people, CTX, tool, terms, NOW, rows.questions if rows else ()),
        approval=approval_of(task.revision, rows),
        now=NOW,
    )
    event(f"{second.kind}: {worth.kind}")
    if worth.kind != "run":
        return
    assert task.digest == digest
    # A task cannot claim more: approvers approved only the question that they were asked.
    assert task.revision is None or first.kind == "ask"
    if second.kind == "ask":
        about = [vote for vote in votes if vote.approval_id == "main.s.t.c1.1" and vote.revision in (None, 1)]
        people = {vote.subject for vote in about if vote.verdict == "approved"} & {"approver", "ana"}
        policy = runs.policy(tool).policy
        assert len(people) >= (policy.quorum if policy is not None else 1)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_only_ungated_calls_run_undecided_on_the_server(seed: int, turn_rig: TurnRig) -> None:
    chance = random.Random(seed)
    ledger = Ledger()
    tools = [
        pay_tool(ledger, ApprovalPolicy(auto_approve_if="args.amount < 10.0")),
        pay_tool(ledger, name="wire"),
        pay_tool(ledger, False, name="look"),
        pay_tool(ledger, False, name="secret"),
    ]
    catalog = catalog_of(tools, actors=[Actor(name="desk", model="scripted", tools=("pay", "wire", "look"))])
    tool_names, amounts = ["pay", "wire", "look", "secret", "nothing"], [1, 20, "x"]
    proposed = [(chance.choice(tool_names), {"amount": chance.choice(amounts)}) for _ in range(12)]
    script = [calls(*proposed, ("wire", {"amount": 1})), respond("done")]
    async with turn_rig.running(catalog, script) as turns:
        key = await turns.start()
        # Let the running calls finish: a call cancelled midway may have run although its outcome says otherwise.
        await turns.until(key, lambda view: len(view.calls) == 13 and not {"proposed", "running"} & _states(view))
        await turns.signoff.cancel_turn(key)
        result = await turns.signoff.result(key)
    ran = [(outcome.tool, outcome.code) for outcome in result.calls if outcome.code == "ok"]
    assert len(ran) == len(ledger.rows)
    assert {row[0] for row in ledger.rows} <= {"pay", "look"}
    assert all(args["amount"] in ((1,) if name == "pay" else (1, 20)) for name, args, _ in ledger.rows)
    assert [outcome.call for outcome in result.calls] == [f"c1.{n}" for n in range(1, 14)]


def _states(view: TurnView) -> set[str]:
    return {call.state for call in view.calls}
