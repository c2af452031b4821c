"""Checks the uses that calls of limited tools would take. The call's ticket takes the use."""

import dataclasses
from collections.abc import Sequence

from signoff.contracts.call import CallContext
from signoff.contracts.message import CallPart
from signoff.contracts.usage import LimitedUse, exhausted_message
from signoff.registry.catalog import Catalog
from signoff.registry.scopes.position import owner_of
from signoff.registry.tool import Tool
from signoff.store.limits.usage_counts import UsageCounts
from signoff.store.store import Store


def use_of(catalog: Catalog, tool: Tool, ctx: CallContext, call: str) -> LimitedUse | None:
    if tool.usage_limit is None:
        return None
    return LimitedUse(
        tool.usage_limit, ctx.tenant, _counter_name(catalog, tool), ctx.user.user, ctx.session, ctx.turn, call
    )


async def exhausted_calls(
    store: Store, catalog: Catalog, ctx: CallContext, calls: Sequence[CallPart]
) -> dict[str, str]:
    """Return why calls cannot run now, by call id: their tools have reached their usage limits.

    Raises `StoreUnavailable`.
    """
    view = catalog.tool_view(ctx)
    found = ((call.call, view.tool(call.tool)) for call in calls)
    limited = [
        (call, tool, use) for call, tool in found if tool is not None and (use := use_of(catalog, tool, ctx, call))
    ]
    if not limited:
        return {}
    times = await UsageCounts(store).check([use for _, _, use in limited])
    return {
        call: exhausted_message(tool.name, use.limit, again)
        for (call, tool, use), again in zip(limited, times, strict=True)
        if again is not None
    }


def _counter_name(catalog: Catalog, tool: Tool) -> str:
    """Return the tool's activity, or its name for the registry's own tool.

    Otherwise each step and route that refers to a tool would have a separate limit. For the same reason, a shadow
    counts with the tool that it covers, and an actor's tool at several places with the first.
    """
    limited = [each for each in _find_obeyed(catalog, tool) if each.usage_limit is not None]
    if limited:
        return _counter_name(catalog, limited[-1])
    registered = catalog.resolve(tool.name)
    if registered is not None and _same(registered, tool):
        return tool.name
    owner, _, _ = owner_of(tool)
    twins = (each for each in catalog.tools_named(tool.name) if owner_of(each)[0] == owner and _same(each, tool))
    return min((each.activity for each in twins), default=tool.activity)


def _find_obeyed(catalog: Catalog, tool: Tool) -> tuple[Tool, ...]:
    found = catalog.scopes.get(owner_of(tool)[0])
    return () if found is None else found.policy_tools.get(tool.activity, ())


def _same(one: Tool, another: Tool) -> bool:
    """Return whether two are one tool at two places. A masking tool may mask more of its arguments."""
    return one.site == another.site and one == dataclasses.replace(another, place=one.place, secrets=one.secrets)
