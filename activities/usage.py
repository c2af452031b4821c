"""The uses that calls of limited tools would take (F18): looked at by the gates, taken with the call's ticket."""

import dataclasses
from collections.abc import Sequence

from signoff.contracts.call import Pinned
from signoff.contracts.message import CallPart
from signoff.registry.catalog import Catalog
from signoff.registry.tool import Tool
from signoff.registry.usage import Use, used_up
from signoff.store.store import Store
from signoff.store.usage import Usage


def use_of(catalog: Catalog, tool: Tool, ctx: Pinned, call: str) -> Use | None:
    """The use that a call takes; None of a tool without a limit."""
    if tool.usage_limit is None:
        return None
    return Use(tool.usage_limit, ctx.tenant, _counted(catalog, tool), ctx.user.user, ctx.session, ctx.turn, call)


async def spent(store: Store, catalog: Catalog, ctx: Pinned, calls: Sequence[CallPart]) -> dict[str, str]:
    """Why calls cannot be made now, by their ids, as their tools were used too often. Raises `StoreUnavailable`."""
    sight = catalog.sight(ctx)
    found = ((call.call, sight.tool(call.tool)) for call in calls)
    limited = [
        (call, tool, use) for call, tool in found if tool is not None and (use := use_of(catalog, tool, ctx, call))
    ]
    if not limited:
        return {}
    times = await Usage(store).look([use for _, _, use in limited])
    return {
        call: used_up(tool.name, use.limit, again)
        for (call, tool, use), again in zip(limited, times, strict=True)
        if again is not None
    }


def _counted(catalog: Catalog, tool: Tool) -> str:
    """Under which name its uses are counted: its activity, or its name where it is the registry's tool elsewhere.

    Else a tool could be used as often again in each step and route that refers to it.
    """
    registered = catalog.registry.resolve(tool.name)
    if registered is None or registered.site != tool.site:
        return tool.activity
    # What it stands over may mask more of its arguments.
    same = registered == dataclasses.replace(tool, place="", secrets=registered.secrets)
    return tool.name if same else tool.activity
