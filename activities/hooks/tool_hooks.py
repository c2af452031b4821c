"""Calls a tool's own functions: availability and permission of a call. A failure means no."""

import asyncio
import dataclasses
import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from signoff.activities.hooks.hook_caller import NoAnswer, ask
from signoff.activities.hooks.permissions import PermissionReader, permission_of
from signoff.activities.hooks.policy_handlers import apply_policy_handler
from signoff.contracts.activity_messages import Tally
from signoff.contracts.call import CallContext
from signoff.contracts.message import CallPart
from signoff.contracts.names import READ_REST
from signoff.formats.hours import is_open
from signoff.policypool.pool import ask_rules
from signoff.registry.catalog import Catalog
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.gates.pipeline import GateFacts, judge
from signoff.registry.hooks import AVAILABLE, SELECT, HookContext, Permission, Select, hook_context
from signoff.registry.tool import Tool

logger = logging.getLogger("signoff.activities")


async def unavailable_tools(
    catalog: Catalog, ctx: CallContext, names: Iterable[str], seconds: float | None = None, *, at: datetime
) -> frozenset[str]:
    """Return the tools that are unavailable `at` a moment, or outside their hours.

    Never raises. Hooks run in parallel, and only for tools that the actor of `ctx` could see, so that nothing about the
    others is revealed.
    """
    view = catalog.tool_view(ctx)
    found = (view.tool(name) for name in dict.fromkeys(names))
    asked = [tool for tool in found if tool is not None and (tool.available is not None or tool.hours)]
    if not asked:
        return frozenset()
    context = hook_context(ctx, catalog.fields)
    asked = [tool for tool in asked if view.offers(tool)]
    closed = frozenset(tool.name for tool in asked if tool.hours and not is_open(tool.hours, at))
    asked = [tool for tool in asked if tool.name not in closed]
    answers = await asyncio.gather(*(_is_available(tool, context, seconds) for tool in asked))
    return closed.union(tool.name for tool, there in zip(asked, answers, strict=True) if not there)


async def withheld_tools(catalog: Catalog, ctx: CallContext, *, at: datetime) -> frozenset[str]:
    """Return the names of the tools that are unavailable or not selected. Never raises."""
    seen = await ask_rules(catalog.may_block, catalog.tool_view(ctx).visible)
    unavailable, others = await asyncio.gather(
        unavailable_tools(catalog, ctx, (tool.name for tool in seen), at=at), _find_unselected(catalog, ctx, seen)
    )
    return unavailable | others


async def apply_hooks(
    catalog: Catalog,
    ctx: CallContext,
    call: CallPart,
    args: Any,
    tally: Tally,
    found: JudgedCall,
    known: GateFacts,
    *,
    dry_run: bool = False,
    permissions: PermissionReader | None = None,
) -> JudgedCall:
    """Return `found` with the answers of the tool's permission check and the policy's handler, if needed.

    `tally` and `known` must belong to `found`. Without `permissions`, each check runs again. Never raises.
    """
    if found.awaits_permission and found.tool is not None:
        permission = await _permission(catalog, ctx, found.tool, found.args(args), permissions)
        known = dataclasses.replace(known, permission=permission)
        found = await ask_rules(catalog.may_block, judge, catalog, ctx, call, args, tally, dry_run=dry_run, known=known)
    return await apply_policy_handler(catalog, ctx, call, args, found)


async def judge_call(
    catalog: Catalog,
    ctx: CallContext,
    call: CallPart,
    args: Any,
    backends: frozenset[str],
    *,
    at: datetime,
    permissions: PermissionReader | None = None,
) -> JudgedCall:
    """Judge one call with all gates and hooks, without asking approvers.

    Never raises. Ignores the tool's usage limit: the claim of the ticket enforces it.
    """
    unavailable = await unavailable_tools(catalog, ctx, (call.tool,), at=at)
    known = GateFacts(unavailable=unavailable, backends=backends, spent={}, at=at)
    # Use an empty tally: the judgement of the whole batch counted repeats.
    found = await ask_rules(catalog.may_block, judge, catalog, ctx, call, args, Tally(), known=known)
    return await apply_hooks(catalog, ctx, call, args, Tally(), found, known, permissions=permissions)


def past_call_facts(catalog: Catalog, ctx: CallContext, calls: Iterable[CallPart], at: datetime | None) -> GateFacts:
    """Collect the gates' facts on calls that may have happened. Their present availability does not matter."""
    view = catalog.tool_view(ctx)
    tools = (view.tool(call.tool) for call in calls)
    kinds = frozenset(kind for tool in tools if tool is not None for kind in tool.capabilities.kinds)
    return GateFacts(backends=kinds, permission=Permission.allow(), spent={}, at=at)


async def judge_past_call(
    catalog: Catalog, ctx: CallContext, call: CallPart, args: Any, at: datetime | None
) -> JudgedCall:
    """Judge a call that may have happened, by the rules, to find its approvers. Never raises."""
    known = past_call_facts(catalog, ctx, (call,), at)
    found = await ask_rules(catalog.may_block, judge, catalog, ctx, call, args, Tally(), known=known)
    return await apply_policy_handler(catalog, ctx, call, args, found)


async def _permission(
    catalog: Catalog, ctx: CallContext, tool: Tool, args: Any, permissions: PermissionReader | None
) -> Permission:
    if permissions is None:
        return await permission_of(tool, args, hook_context(ctx, catalog.fields))
    return await permissions.read(tool, args, ctx)


async def _find_unselected(catalog: Catalog, ctx: CallContext, seen: Sequence[Tool]) -> frozenset[str]:
    """Return the names in `seen` that a `select` of the actor, route or step leaves out, except framework tools."""
    position = catalog.tool_view(ctx).position
    if position is None or not position.is_selected:
        return frozenset()
    there = {tool.name: tool.facts for tool in seen if not tool.of_framework}
    context = dataclasses.replace(hook_context(ctx, catalog.fields), tools=there)
    names = frozenset(there)
    if position.route_select is not None and position.route not in await _select(position.route_select, ctx, context):
        # Do not offer the rest behind the route: the route may protect it.
        return frozenset(tool.name for tool in seen if tool.name != READ_REST)
    chosen = await asyncio.gather(*(_select(select, ctx, context) for select in position.selects))
    return frozenset(name for name in names if not all(name in each for each in chosen))


async def _select(select: Select, ctx: CallContext, context: HookContext) -> frozenset[str]:
    data = ctx.extra.get("data")
    try:
        return await ask(SELECT, select, context, data if isinstance(data, dict) else {})
    except NoAnswer as none:
        # Without a selection, offer no tool and no route: all of them would exceed the intention.
        logger.warning("no tool is chosen: `select` of actor %s %s", ctx.actor, none)
        return frozenset()


async def _is_available(tool: Tool, context: HookContext, seconds: float | None) -> bool:
    if tool.available is None:
        return True
    try:
        return await ask(AVAILABLE, tool.available, context, seconds=seconds)
    except NoAnswer as none:
        logger.warning("tool %s is not available: `available` %s", tool.name, none)
        return False
