from dataclasses import replace
from typing import Any

from temporalio.client import Client
from turn_fixtures import Ledger, RunningTurns, catalog_of, pay_tool, running_turns

from signoff.audit.call_history import past_calls
from signoff.audit.log import AuditLog
from signoff.contracts.updates import Updates
from signoff.engine.policy_simulation import simulate
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor, Route, Step
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolFailure, ToolResult
from signoff.store.store import Store
from signoff.testing.scripted_model import calls, respond

PAY = ("pay", {"amount": 20, "to": "Ana"})
RUNS = ApprovalPolicy(auto_approve_if="args.amount < 50.0")


async def would(turns: RunningTurns, catalog: Catalog) -> list[tuple[str, str, str]]:
    past = await past_calls(AuditLog(turns.store), "", tenant="main")
    tried = await simulate(turns.client, turns.store, catalog, past)
    return [(each.past.tool, each.would, each.why) for each in tried]


async def test_call_of_a_turns_own_tool_is_judged_with_it(client: Client, store: Store, task_queue: str) -> None:
    """At its actor's place the tool is unavailable, but the turn had it as its own."""
    route = Route(name="trip", steps=(Step(name="buy", mode="only"),))
    actors = [Actor(name="desk", model="scripted", routes=(route,))]
    catalog = catalog_of([pay_tool(Ledger(), RUNS)], actors=actors)
    async with running_turns(client, store, task_queue, catalog, [calls(PAY), respond("done")]) as turns:
        result = await turns.signoff.result(await turns.start(route="trip", step="buy", transient=("pay",)))
        assert [each.code for each in result.calls] == ["ok"]
        assert await would(turns, catalog) == [("pay", "run", "auto_approve_if")]


async def chosen(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    return ToolResult("chosen", context_update={"project": "moon"})


async def test_call_is_judged_with_the_context_changed_by_earlier_tools(
    client: Client, store: Store, task_queue: str
) -> None:
    project = ApprovalPolicy(auto_approve_if="ctx.project == 'moon'", require_approval_if="ctx.project == 'mars'")
    choose = pay_tool(Ledger(), RUNS, name="choose", handler=chosen, updates=("project",))
    catalog = build_catalog(
        tools=[choose, pay_tool(Ledger(), project)],
        actors=[Actor(name="desk", model="scripted")],
        context={"project": {"type": "string"}},
    )
    script = [calls(("choose", PAY[1])), calls(PAY), respond("done")]
    async with running_turns(client, store, task_queue, catalog, script) as turns:
        earlier = Updates(context={"project": "mars"})
        result = await turns.signoff.result(await turns.start(updates=earlier))
        assert [each.code for each in result.calls] == ["ok", "ok"]
        by_project = replace(choose, requires_approval=ApprovalPolicy(auto_approve_if="ctx.project == 'mars'"))
        stricter = build_catalog(
            tools=[by_project, pay_tool(Ledger(), project)],
            actors=[Actor(name="desk", model="scripted")],
            context={"project": {"type": "string"}},
        )
        verdicts = await would(turns, stricter)
    assert verdicts == [("choose", "run", "auto_approve_if"), ("pay", "run", "auto_approve_if")]


async def test_call_of_a_fallback_tool_is_unknown(client: Client, store: Store, task_queue: str) -> None:
    async def fails(args: dict[str, Any], ctx: ToolContext) -> ToolFailure:
        return ToolFailure("the bank is closed")

    tools = [
        pay_tool(Ledger(), RUNS, handler=fails, idempotent=True, fallbacks=("wire",)),
        pay_tool(Ledger(), RUNS, name="wire"),
    ]
    catalog = catalog_of(tools)
    async with running_turns(client, store, task_queue, catalog, [calls(PAY), respond("done")]) as turns:
        result = await turns.signoff.result(await turns.start())
        verdicts = await would(turns, catalog)
    assert [(each.code, each.fallback) for each in result.calls] == [("ok", "wire")]
    assert verdicts == [
        ("pay", "run", "auto_approve_if"),
        ("wire", "unknown", "no model proposed it: it was the fallback of a failed call"),
    ]


async def test_call_is_judged_at_the_step_to_which_its_turn_had_moved(
    client: Client, store: Store, task_queue: str
) -> None:
    steps = (Step(name="ask", collect={"city": None}, mode="only"), Step(name="buy", mode="only", tools=("pay",)))
    actors = [Actor(name="desk", model="scripted", routes=(Route(name="trip", steps=steps),))]
    catalog = catalog_of([pay_tool(Ledger(), RUNS)], actors=actors)
    script = [calls(("collect", {"city": "Porto"})), calls(PAY), respond("done")]
    async with running_turns(client, store, task_queue, catalog, script) as turns:
        result = await turns.signoff.result(await turns.start(route="trip"))
        assert [each.code for each in result.calls] == ["ok", "ok"]
        assert [each[:2] for each in await would(turns, catalog)] == [("collect", "run"), ("pay", "run")]
