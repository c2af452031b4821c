"""Calls a tool's handler, and sees to it that whatever that raises ends one call and nothing else."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from temporalio import activity

from signoff.activities.hooks.hook_caller import HandlerEnded
from signoff.contracts.call import Permit
from signoff.people.directory import Directory
from signoff.registry.capabilities import NOTHING_GRANTED, GrantedCapabilities
from signoff.registry.cel_context import ContextFields, handler_context, handler_data
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext

_NO_SETTINGS: Final[Mapping[str, Any]] = MappingProxyType({})


async def run_handler(tool: Tool, args: dict[str, Any], context: ToolContext) -> Any:
    """Runs the handler and returns its result; an attempt to end the process is raised as `HandlerEnded`."""
    try:
        return await tool.handler(args, context)
    except (SystemExit, KeyboardInterrupt) as error:
        # Let through, it would stop the worker with everything it runs, and then the next one that tries.
        raise HandlerEnded(f"the tool tried to end the process ({type(error).__name__})") from None


def tool_context_of(
    permit: Permit,
    key: str,
    budget_chars: int,
    *,
    people: Directory,
    fields: ContextFields,
    settings: Mapping[str, Any] = _NO_SETTINGS,
    capabilities: GrantedCapabilities = NOTHING_GRANTED,
) -> ToolContext:
    """Makes the context of the handler, or the probe, of a call; `key` is that of its ticket, `fields` are the context
    fields of the catalog.

    `permit` is one that was proved: whom it names is told to the tool as who decided.
    """
    ctx = permit.ctx
    known = people.person_id(ctx.user.user, ctx.tenant)
    last = permit.decisions[-1] if permit.decisions else None
    return ToolContext(
        actor_name=ctx.actor,
        session_id=ctx.session,
        turn_id=ctx.turn,
        call_id=permit.call,
        tenant_id=ctx.tenant,
        user_id=ctx.user.user,
        # An account that has left the directory since is still that human's.
        person_id=ctx.user.human if known == ctx.user.user else known,
        user=ctx.user,
        idempotency_key=key,
        approval_decision="approved" if permit.kind == "approved" else None,
        approval_reason=last.reason if last else "",
        decided_by=", ".join(dict.fromkeys(each.subject for each in permit.decisions)),
        attempt=activity.info().attempt,
        result_budget_chars=budget_chars,
        route=ctx.route,
        step=ctx.step,
        context=handler_context(ctx, fields),
        data=handler_data(ctx, fields),
        settings=settings,
        capabilities=capabilities,
    )
