import asyncio
from typing import Any

import pytest
from registry_kit import SCHEMA, a_tool, an_actor, nothing
from turn_fixtures import GUEST

from signoff.contracts.errors import ConfigError
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.registry.catalog import build_catalog
from signoff.registry.hooks import HookContext, Permission
from signoff.registry.tool_context import ToolContext
from signoff.testing import a_call_context, available_tools, execute_parallel, offered_definitions

GOOD = {"flight": "TP 1", "totalCost": 20}


async def here(context: HookContext) -> bool:
    return context.user.user == "guest"


async def no(args: dict[str, Any], context: HookContext) -> Permission:
    return Permission.deny("not today")


@pytest.mark.row("E04")
async def test_tool_lists_in_tests_check_availability() -> None:
    async def gone(context: HookContext) -> bool:
        return False

    tools = [a_tool("bags"), a_tool("meals", available=here), a_tool("seats", available=gone)]
    catalog = build_catalog(tools=tools, actors=[an_actor()])
    ctx = a_call_context(user=GUEST)
    assert [tool.name for tool in catalog.available(ctx)] == ["bags"]
    assert [tool.name for tool in await available_tools(catalog, ctx)] == ["bags", "meals"]
    assert [each.name for each in await offered_definitions(catalog, ctx)] == ["bags", "meals", "respond"]


@pytest.mark.row("E01")
async def test_catalog_and_parallel_calls_work_without_a_server() -> None:
    together = asyncio.Barrier(2)
    ran: list[str] = []

    async def meet(args: dict[str, Any], context: ToolContext) -> str:
        # Neither returns before the other has begun.
        await together.wait()
        ran.append(context.call_id)
        return f"of {context.call_id}"

    tools = [
        a_tool("seats", toolset="rail", handler=meet),
        a_tool("bags", toolset="air"),
        a_tool("meals", toolset="rail", available=here),
        a_tool("pay", toolset="rail", requires_approval=ApprovalPolicy()),
        a_tool("wire", check_permissions=no),
        a_tool("hidden", toolset="rail"),
    ]
    rules = [GlobalRule(name="h", rule="tool.name == 'hidden'", effect="hide")]
    catalog = build_catalog(tools=tools, actors=[an_actor()], policies=rules)
    ctx = a_call_context(user=GUEST)

    assert catalog.get("seats") is catalog.registry.resolve("seats")
    assert catalog.get("Seats") is None
    assert [tool.name for tool in catalog.available(ctx)] == ["bags", "pay", "seats", "wire"]
    asked = frozenset[str]()
    assert [tool.name for tool in catalog.available(ctx, asked)] == ["bags", "meals", "pay", "seats", "wire"]
    assert [tool.name for tool in catalog.for_toolset("rail", ctx)] == ["pay", "seats"]
    assert [tool.name for tool in catalog.for_toolset("rail", ctx, asked)] == ["meals", "pay", "seats"]
    shown = [each.name for each in catalog.definitions(ctx, asked)]
    assert shown == ["bags", "meals", "pay", "seats", "wire", "respond"]
    assert [each.name for each in catalog.definitions(ctx)] == ["bags", "pay", "seats", "wire", "respond"]

    calls = [("seats", GOOD), ("pay", GOOD), ("seats", GOOD | {"totalCost": 3}), ("hidden", GOOD), ("wire", GOOD)]
    calls += [("meals", GOOD), ("bags", {"flight": 7}), ("seat", GOOD)]
    found = await execute_parallel(catalog, calls, ctx)
    assert [each.call for each in found] == [f"c1.{n}" for n in range(1, 9)]
    assert [each.kind for each in found] == ["run", "ask", "run", *["settled"] * 2, "run", *["settled"] * 2]
    codes = [each.outcome.code if each.outcome else "" for each in found]
    assert codes == ["ok", "", "ok", "not_available", "denied", "ok", "input_invalid", "not_available"]
    assert [each.outcome.value.inline for each in found if each.outcome][:2] == ["of c1.1", "of c1.3"]
    assert sorted(ran) == ["c1.1", "c1.3"]
    request = found[1].request
    assert request is not None
    assert (request.tool, request.args.inline) == ("pay", GOOD)


@pytest.mark.row("E01")
async def test_undefined_tools_do_not_run() -> None:
    tools = [a_tool("seats"), a_tool("bags"), a_tool("fares", tenants=("elsewhere",))]
    actors = [an_actor(), an_actor("porto", tools=("bags",))]
    catalog = build_catalog(tools=tools, actors=actors)
    for actor in ("desk", "porto"):
        ctx = a_call_context(actor=actor, user=GUEST)
        shown = {each.name for each in catalog.definitions(ctx)} - {"respond"}
        found = await execute_parallel(catalog, [(tool.name, GOOD) for tool in catalog.tools()], ctx)
        assert {each.outcome.tool for each in found if each.outcome and each.outcome.code == "ok"} == shown


async def test_tool_not_selected_by_the_function_does_not_run() -> None:
    catalog = build_catalog(tools=[a_tool()], actors=[an_actor(select=nothing)])
    ctx = a_call_context(user=GUEST)
    assert catalog.available(ctx) == ()
    found = await execute_parallel(catalog, [("book_flight", GOOD)], ctx)
    assert [each.outcome.code for each in found if each.outcome] == ["not_available"]


async def test_exclusive_tool_runs_alone() -> None:
    running: list[str] = []

    async def watch(args: dict[str, Any], context: ToolContext) -> int:
        running.append(context.call_id)
        await asyncio.sleep(0)
        found = len(running)
        running.remove(context.call_id)
        return found

    catalog = build_catalog(tools=[a_tool(handler=watch, concurrency="exclusive")], actors=[an_actor()])
    calls = [("book_flight", GOOD | {"totalCost": n}) for n in range(4)]
    found = await execute_parallel(catalog, calls, a_call_context(user=GUEST))
    assert [each.outcome.value.inline for each in found if each.outcome] == ["1"] * 4


async def test_definitions_of_an_unknown_actor_are_refused() -> None:
    catalog = build_catalog(tools=[a_tool(input_schema=SCHEMA)], actors=[an_actor()])
    ctx = a_call_context(actor="dsk", user=GUEST)
    assert catalog.available(ctx) == ()
    with pytest.raises(ConfigError, match=r"there is no actor `dsk`.*`desk`"):
        catalog.definitions(ctx)
