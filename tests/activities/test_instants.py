"""A deploy may make an approved call stricter, the clock may not. Denials apply at the present time."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

from activity_kit import TURN, about, asked, pinned, run, task_for, worker_deps
from some import some
from tables import table
from turn_fixtures import Ledger, pay_tool

from signoff.activities.gate_activity import GateActivity
from signoff.activities.hooks.tool_hooks import judge_call
from signoff.activities.run_rules import approval_of
from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts.activity_messages import GateDecision, GateTask, ToolReply
from signoff.contracts.content import Content
from signoff.contracts.message import CallPart
from signoff.formats.replace import replace
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.policy.handler_verdict import HandlerCall, HandlerVerdict
from signoff.registry.program.tool_keywords import BypassRouting
from signoff.registry.tool import Tool
from signoff.store.questions.questions import Questions
from signoff.store.store import Store
from signoff.testing.builders import a_person
from signoff.testing.questions import answer

PEOPLE = tuple(a_person(name) for name in ("ana", "bo"))
LATER = timedelta(hours=30)
HEARD: list[str] = []


def turning() -> str:
    return f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"


def two(when: str, **fields: Any) -> ApprovalPolicy:
    return ApprovalPolicy.model_validate({"grant_ttl": "7d", "terms": [{"when": when, "quorum": 2}], **fields})


def deps_for(store: Store, tool: Tool, after: timedelta = timedelta(0), **fields: Any) -> WorkerDeps:
    deps = worker_deps(store, tool, people=PEOPLE, **fields)
    return dataclasses.replace(deps, clock=lambda: datetime.now(UTC) + after)


async def ran_later(
    store: Store, policy: ApprovalPolicy, *people: str, by: ApprovalPolicy | None = None
) -> tuple[ToolReply, int]:
    ledger = Ledger()
    before, tool = pay_tool(ledger, policy), pay_tool(ledger, by or policy)
    request = await asked(deps_for(store, before), before)
    for each in people:
        await answer(store, about(request, subject=each, delivery_id=f"of {each}"))
    task = task_for(tool, revision=1)
    reply = await run(deps_for(store, tool, LATER), tool, task)
    return reply, len(ledger.rows)


async def test_clock_does_not_make_an_approved_call_stricter(store: Store) -> None:
    """A call approved by one on Friday runs on Saturday, when the rule needs two."""
    reply, ran = await ran_later(store, two(f"ctx.now.at >= '{turning()}'"), "ana")
    assert (reply.again, ran) == ("", 1)


@table(("people", "code"), (("ana",), "refused"), (("ana", "bo"), "ok"))
async def test_quorum_at_question_time_still_applies_later(store: Store, people: tuple[str, ...], code: str) -> None:
    reply, ran = await ran_later(store, two(f"ctx.now.at < '{turning()}'"), *people)
    assert (reply.outcome is not None and reply.outcome.code, ran) == (code, int(code == "ok"))


async def test_deployed_rule_applies_at_the_time_of_the_question(store: Store) -> None:
    reply, ran = await ran_later(store, ApprovalPolicy(grant_ttl=604_800), "ana", by=two(f"ctx.now.at < '{turning()}'"))
    assert (reply.again, ran) == ("policy", 0)


async def test_denial_by_the_present_time_stops_an_approved_call(store: Store) -> None:
    policy = ApprovalPolicy(deny_if=f"ctx.now.at >= '{turning()}'", grant_ttl=604_800)
    reply, ran = await ran_later(store, policy, "ana")
    assert (reply.outcome is not None and reply.outcome.code, ran) == ("denied", 0)


async def test_call_approved_by_a_rule_is_judged_again_at_run_time(store: Store, ledger: Ledger) -> None:
    tool = pay_tool(ledger, ApprovalPolicy(auto_approve_if=f"ctx.now.at < '{turning()}'"))
    assert (await run(deps_for(store, tool, LATER), tool, task_for(tool))).again == "policy"
    assert ledger.rows == []
    assert (await run(deps_for(store, tool), tool, task_for(tool))).again == ""
    assert len(ledger.rows) == 1


async def test_in_doubt_call_denied_by_policy_is_settled_by_its_answer(store: Store) -> None:
    ledger = Ledger()
    tool = pay_tool(ledger, ApprovalPolicy(auto_approve_if="true", deny_if=f"ctx.now.at < '{turning()}'"))
    task = task_for(tool)
    await store.claim(task.digest, workflow=TURN.workflow_id, call="c1.1", tool="pay")
    doubt = await asked(deps_for(store, tool), tool, doubt=1)
    await answer(store, about(doubt, subject="ana"))
    reply = await run(deps_for(store, tool, LATER), tool, replace(task, ticket=2))
    assert (reply.again, len(ledger.rows)) == ("", 1)


async def test_global_rule_reads_the_instant(store: Store) -> None:
    at = turning()
    rule = GlobalRule(name="night", rule=f"ctx.now.at >= '{at}'", effect="require_approval", reason="it is late")
    tool = pay_tool(
        Ledger(),
        False,
        read_only=True,
        routing="bypass",
        scope="specialist",
        justification="only the desk looks at what was paid",
        bypass_routing=BypassRouting("one sum, read at once"),
    )
    deps = deps_for(store, tool, policies=[rule])
    # One catalog and one context: a rule's result at one time must not be cached for the next.
    found = await ruled(deps)
    assert (found.kind, found.options.local) == ("run", False)
    assert (await ruled(dataclasses.replace(deps, clock=lambda: datetime.now(UTC) + LATER))).kind == "ask"
    assert (await ruled(deps_for(store, tool), turn="plain")).options.local


async def ruled(deps: WorkerDeps, **ctx: Any) -> GateDecision:
    call = CallPart(call="c1.1", tool="pay", args=Content(inline={"amount": 20, "to": "Ana"}))
    (gate_decision,) = (await GateActivity(deps).gate(GateTask(ctx=pinned(**ctx), calls=(call,)))).gate_decisions
    return gate_decision


def on_time(call: HandlerCall, context: dict[str, Any]) -> HandlerVerdict:
    HEARD.append(context["now"]["at"])
    return HandlerVerdict("ask")


async def test_handler_receives_the_instant_of_the_question(store: Store, ledger: Ledger) -> None:
    tool = pay_tool(ledger, ApprovalPolicy(handler=f"{__name__}:on_time", grant_ttl=604_800))
    request = await asked(deps_for(store, tool), tool)
    await answer(store, about(request, subject="ana"))
    HEARD.clear()
    task = task_for(tool, revision=1)
    await run(deps_for(store, tool, LATER), tool, task)
    assert len(ledger.rows) == 1
    first, second = (datetime.fromisoformat(each) for each in HEARD)
    assert second == some(request.judged_at).replace(microsecond=0)
    assert first - second >= LATER - timedelta(seconds=5)


async def test_instant_comes_from_the_gates_and_is_in_no_hash(store: Store) -> None:
    tool = pay_tool(Ledger(), ApprovalPolicy())
    deps = deps_for(store, tool)
    first, again = await asked(deps, tool), await asked(deps, tool)
    assert (first.judged_at is not None, first.judging_delay < 60) == (True, True)
    assert (again.question_hash, again.revision) == (first.question_hash, 1)


async def test_worker_with_a_wrong_clock_records_no_instant(store: Store, ledger: Ledger) -> None:
    tool = pay_tool(ledger, two("ctx.now.hour < 0", grant_ttl="7d"))
    deps = deps_for(store, tool, timedelta(minutes=2))
    request = await asked(deps, tool)
    assert request.judged_at is None
    await answer(store, about(request, subject="ana"))
    reply = await run(deps, tool, task_for(tool, revision=1))
    assert (reply.again, ledger.rows) == ("policy", [])


async def test_question_with_a_forged_instant_is_stale(store: Store) -> None:
    tool = pay_tool(Ledger(), ApprovalPolicy())
    deps = deps_for(store, tool)
    request = await asked(deps, tool)
    rows = some(await Questions(store).read(request.id))
    moved = replace(rows.latest, judged_at=datetime.now(UTC) - timedelta(days=2))
    forged = dataclasses.replace(rows, questions=(moved,))
    approval = some(approval_of(1, forged))
    assert approval.stale == "this was judged at another moment than it was asked"


@table(("seconds", "apart"), (59, False), (61, True), (-61, True))
async def test_instant_must_be_within_a_minute_of_the_row(store: Store, seconds: int, apart: bool) -> None:
    tool = pay_tool(Ledger(), ApprovalPolicy())
    request = await asked(deps_for(store, tool), tool)
    assert request.opened_at is not None
    moved = replace(request, judged_at=request.opened_at + timedelta(seconds=seconds))
    assert (moved.judging_delay > 60) is apart


async def test_gates_judge_a_batch_at_one_instant(store: Store) -> None:
    tool = pay_tool(Ledger(), ApprovalPolicy())
    deps = deps_for(store, tool)
    call = CallPart(call="c1.1", tool="pay", args=Content(inline={"amount": 20, "to": "Ana"}))
    at = datetime.now(UTC)
    found = await judge_call(deps.catalog, pinned(), call, {"amount": 20, "to": "Ana"}, deps.kinds, at=at)
    assert found.at == at
