from collections.abc import Mapping
from typing import Any

import pytest
from activity_kit import TURN, free, outcome_of_lost, pinned, run, summary, task_for, worker_deps
from tables import table
from turn_fixtures import GUEST, Ledger

from signoff.activities.hooks.tool_hooks import unavailable_tools, withheld_tools
from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts.activity_messages import OutcomeTask
from signoff.contracts.call import CallContext
from signoff.contracts.clock import system_clock
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.registry.actor import Actor
from signoff.registry.hooks import DidNotHappen, HookContext, Permission
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.store.store import Store
from signoff.store.tickets import ticket_key
from signoff.tools import context_first

FIELDS = {
    "project": {"type": "object"},
    "user.costCentre": {"type": "string"},
    "user.limit": {"type": "integer"},
    "never": {"type": "string"},
}
EXTRA = {
    "project": {"name": "Bridge", "stages": ["plan"]},
    "user.costCentre": "4711",
    "user.limit": "no number",
    "undeclared": "of nobody",
    "data": {"city": "Porto", "guests": [{"name": "Ana"}]},
}
CONTEXT = {"project": {"name": "Bridge", "stages": ["plan"]}, "user": {"costCentre": "4711"}}
Seen = dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]]


def watched(seen: Seen) -> Tool:
    def look(name: str, context: ToolContext | HookContext) -> None:
        seen[name] = (context.context, context.data)
        for change in (context.context, context.context["project"], context.data, context.data["guests"][0]):
            with pytest.raises(TypeError):
                change["city"] = "Faro"  # type: ignore[index]
        with pytest.raises(TypeError):
            context.data["guests"].append({})

    async def handler(context: ToolContext, args: dict[str, Any]) -> str:
        look("handler", context)
        return "done"

    async def available(context: HookContext) -> bool:
        look("available", context)
        return True

    async def check(args: dict[str, Any], context: HookContext) -> Permission:
        look("check_permissions", context)
        return Permission.allow()

    async def probe(args: dict[str, Any], context: ToolContext) -> DidNotHappen:
        look("probe", context)
        return DidNotHappen()

    given = {"handler": context_first(handler), "available": available, "check_permissions": check, "probe": probe}
    return free(Ledger(), **given)


def deps_with(store: Store, tool: Tool, **fields: Any) -> WorkerDeps:
    attributes = {"costCentre": "4711", "limit": "no number"}
    guest = Person(id="guest", name=GUEST.name, attributes=attributes)
    return worker_deps(store, tool, context=FIELDS, people=[guest], **fields)


@pytest.mark.row("F02")
async def test_handler_and_hooks_read_context_and_data_without_changing_them(store: Store) -> None:
    seen: Seen = {}
    tool, ctx = watched(seen), pinned(extra=EXTRA)
    deps = deps_with(store, tool)
    task = task_for(tool, ctx=ctx)
    assert summary(await run(deps, tool, task)) == ("ok", "done")
    lost = task_for(tool, ctx=pinned(extra=EXTRA, user=replace(GUEST, nonce="later")))
    await store.claim(ticket_key(lost.digest, 1), workflow=TURN.workflow_id, call="c1.1", tool="pay", nonce="later")
    task = OutcomeTask(run=lost)
    reply = await outcome_of_lost(deps, task)
    assert reply.again == "undone"
    assert set(seen) == {"handler", "available", "check_permissions", "probe"}
    assert {name: each for name, each in seen.items() if each != (CONTEXT, EXTRA["data"])} == {}
    assert ctx.extra == EXTRA


@pytest.mark.row("F02")
async def test_selection_function_reads_context_and_data(store: Store) -> None:
    seen: list[tuple[Any, Any, Any]] = []

    async def choose(context: HookContext, data: dict[str, Any]) -> list[str]:
        seen.append((context.context, context.data, data))
        return ["pay"]

    actor = Actor(name="desk", model="scripted", select=choose)
    deps = deps_with(store, free(Ledger()), actors=[actor])
    assert await withheld_tools(deps.catalog, pinned(extra=EXTRA), at=system_clock()) == frozenset()
    assert seen == [(CONTEXT, EXTRA["data"], EXTRA["data"])]


@table("data", None, "city", ["city"], {"city": 7})
async def test_data_outside_the_declared_schema_is_dropped(store: Store, data: Any) -> None:
    seen: list[HookContext] = []

    async def available(context: HookContext) -> bool:
        seen.append(context)
        return True

    fields = {"data": {"type": "object", "properties": {"city": {"type": "string"}}}}
    deps = worker_deps(store, free(Ledger(), available=available), context=fields)
    for extra in ({"data": data}, {"data": {"city": "Porto"}}):
        await ask_available(deps, pinned(extra=extra))
    assert [(each.context, each.data) for each in seen] == [({}, {}), ({}, {"city": "Porto"})]


async def ask_available(deps: WorkerDeps, ctx: CallContext) -> None:
    assert await unavailable_tools(deps.catalog, ctx, ("pay",), at=system_clock()) == frozenset()
