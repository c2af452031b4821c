"""Runs the calls of one completion through all gates in this process, without server, model or approvers."""

import asyncio
import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from temporalio.testing import ActivityEnvironment

from signoff import policypool
from signoff.activities.capability_backends import built_in_backends
from signoff.activities.gate_activity import GateActivity
from signoff.activities.hooks.tool_hooks import withheld_tools
from signoff.activities.results.read_rest_tool import bind_to_store
from signoff.activities.results.result_processor import plain_outcome
from signoff.activities.run_once import RunOnce
from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts import names
from signoff.contracts.activity_messages import GateDecision, GateTask, ModelTool, RunTask, ToolReply
from signoff.contracts.call import CallContext, CallOutcome
from signoff.contracts.clock import system_clock
from signoff.contracts.ids import SessionKey, TurnKey, call_id
from signoff.contracts.limits import CALLS_PER_COMPLETION
from signoff.contracts.message import CallPart
from signoff.formats.replace import replace
from signoff.registry.actor_checks import check_actors
from signoff.registry.capabilities import Backend
from signoff.registry.catalog import Catalog
from signoff.registry.program.program import Program
from signoff.registry.tool import Tool
from signoff.store.content_store import to_content
from signoff.store.store import Store, open_store

_MARK_KEY = b"a key of tests alone, under which cards show their digests"


async def available_tools(catalog: Catalog, ctx: CallContext) -> tuple[Tool, ...]:
    """Run the hooks, and return the actor's tools at this time, in the model's order.

    Hours, `available` and `select` filter them. `Catalog.available` calls no functions and leaves out all tools that
    depend on one.
    """
    return catalog.available(ctx, await withheld_tools(catalog, ctx, at=system_clock()))


async def offered_definitions(catalog: Catalog, ctx: CallContext) -> tuple[ModelTool, ...]:
    """Return the definitions of `available_tools` and of `respond`."""
    return catalog.definitions(ctx, await withheld_tools(catalog, ctx, at=system_clock()))


class ToolFilters(TypedDict, total=False):
    """Filters of tools, as an actor declares them."""

    allowed_plugins: Sequence[str]
    allowed_mcp_servers: Sequence[str]
    allowed_mcp_tools: Mapping[str, Sequence[str]]


async def execute_parallel(
    app: Program | Catalog,
    calls: Sequence[tuple[str, Any]],
    ctx: CallContext,
    *,
    dry_run: bool = False,
    allowed: Sequence[str] | None = None,
    filters: ToolFilters | None = None,
    backends: Mapping[str, Backend] | None = None,
) -> tuple[GateDecision, ...]:
    """Judge `calls` as one completion, run the allowed ones, and return the decisions.

    Each call is `(tool, arguments)`. The gates' decisions are in order. `app` is an app or its catalog. With `dry_run`,
    the gates judge the calls, and no tool runs. `allowed` replaces the actor's list of tools for these calls, and
    `filters` replace its filters. Raises `ConfigError` for an unknown name in either.

    Allowed calls have run once. Their decisions have an `outcome`, and so do settled calls. A decision of kind `ask`
    has none: its `request` describes the question. The requester of `ctx` counts only as the catalog's people know
    them, as in a turn. Fallbacks are not tried. `backends` maps kinds of capabilities to backends. The default is a
    worker's own, in a temporary directory.
    """
    catalog = _narrow(app.build() if isinstance(app, Program) else app, ctx.actor, allowed, filters or {})
    policypool.install()
    with tempfile.TemporaryDirectory() as folder:
        async with open_store(f"sqlite:///{folder}/signoff.db") as store:
            given = built_in_backends(Path(folder) / "storage") if backends is None else backends
            deps = WorkerDeps(catalog, store, catalog.people, {}, _MARK_KEY, backends=given)
            parts = [await _part(store, ctx, index, call) for index, call in enumerate(calls, 1)]
            if not parts:
                return ()
            # As with a model's reply: a tool missing or not chosen at the request cannot be called later.
            withheld = await withheld_tools(catalog, ctx, at=deps.clock())
            task = GateTask(ctx=ctx, calls=tuple(parts), withheld=tuple(sorted(withheld)), dry_run=dry_run)
            reply = await _environment(ctx, names.GATE, names.GATE).run(GateActivity(deps).gate, task)
            return await _run_all(deps, ctx, parts, reply.gate_decisions)


def _narrow(catalog: Catalog, name: str, allowed: Sequence[str] | None, filters: ToolFilters) -> Catalog:
    if allowed is None and not filters:
        return catalog
    actor = catalog.actor(name)
    if allowed is not None:
        actor = dataclasses.replace(actor, tools=tuple(allowed))
    if "allowed_plugins" in filters:
        actor = dataclasses.replace(actor, allowed_plugins=tuple(filters["allowed_plugins"]))
    if "allowed_mcp_servers" in filters:
        actor = dataclasses.replace(actor, allowed_mcp_servers=tuple(filters["allowed_mcp_servers"]))
    if "allowed_mcp_tools" in filters:
        names_of = {server: tuple(bare) for server, bare in filters["allowed_mcp_tools"].items()}
        actor = dataclasses.replace(actor, allowed_mcp_tools=names_of)
    known = check_actors((*(each for each in catalog.actors.values() if each.name != name), actor), catalog.registry)
    return dataclasses.replace(catalog, actors=known)


async def _run_all(
    deps: WorkerDeps, ctx: CallContext, parts: Sequence[CallPart], decisions: Sequence[GateDecision]
) -> tuple[GateDecision, ...]:
    """Run in sequence if the actor or one of the tools requires it, else in parallel."""
    options = [each.options for each in decisions if each.kind == "run"]
    alone = any(each.exclusive for each in options)
    room = asyncio.Semaphore(1 if alone else min((each.at_once for each in options), default=1))

    async def run(part: CallPart, decision: GateDecision) -> GateDecision:
        if decision.kind != "run":
            return decision
        async with room:
            return replace(decision, outcome=await _run(deps, ctx, part, decision))

    return tuple(await asyncio.gather(*(run(*each) for each in zip(parts, decisions, strict=True))))


async def _run(deps: WorkerDeps, ctx: CallContext, part: CallPart, decision: GateDecision) -> CallOutcome:
    activity = decision.options.activity or part.tool
    tool = deps.catalog.tool(activity)
    if tool is None:
        return plain_outcome(part.call, part.tool, "refused", f"there is no tool `{activity}`")
    task = RunTask(
        ctx=ctx,
        tool=part.tool,
        call=part.call,
        args=part.args,
        digest=decision.digest,
        grant=decision.grant,
        budget_chars=decision.options.budget_chars,
    )
    running = RunOnce(deps, bind_to_store(tool, deps.store)).run
    reply: ToolReply = await _environment(ctx, activity, part.call).run(running, task)
    if reply.outcome is not None:
        return reply.outcome
    return plain_outcome(part.call, part.tool, "refused", reply.note or f"it must be judged again: {reply.again}")


async def _part(store: Store, ctx: CallContext, index: int, call: tuple[str, Any]) -> CallPart:
    name, args = call
    content = await to_content(store, args, SessionKey(ctx.tenant, ctx.session))
    return CallPart(call=call_id(1, index), tool=name, args=content, surplus=index > CALLS_PER_COMPLETION)


def _environment(ctx: CallContext, activity: str, activity_id: str) -> ActivityEnvironment:
    made = ActivityEnvironment()
    workflow = TurnKey(ctx.tenant, ctx.session, ctx.turn).workflow_id
    made.info = dataclasses.replace(
        made.info,
        workflow_type=names.ACTOR_TURN,
        workflow_id=workflow,
        activity_id=activity_id,
        activity_type=activity,
        is_local=activity == names.GATE,
    )
    return made
