"""A tool's handler at arm's length: whatever it throws ends one call, and its words give no secret away."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from temporalio import activity

from signoff.activities.capabilities import quiet
from signoff.activities.quoted import without
from signoff.contracts.call import Permit
from signoff.registry.capabilities import NOTHING_GRANTED, Granted
from signoff.registry.context import ToolContext
from signoff.registry.secret_names import hide
from signoff.registry.tool import Tool

_LEAST_CHARS: Final = 3
"""Shorter secrets are left where they stand: hiding every `1` of an error text would only make it unreadable."""


class HandlerEnded(Exception):
    """A handler tried to end more than its own call: it left the process, or cancelled itself."""


async def contained(tool: Tool, args: dict[str, Any], context: ToolContext) -> Any:
    """What the handler returns or raises; an attempt to end the process is raised as `HandlerEnded`."""
    try:
        return quiet(await tool.handler(args, context), context.capabilities)
    except (SystemExit, KeyboardInterrupt) as error:
        # Let through, it would stop the worker with everything it runs, and then the next one that tries.
        raise HandlerEnded(f"the tool tried to end the process ({type(error).__name__})") from None


def context_of(
    permit: Permit, key: str, budget_chars: int, *, dry_run: bool = False, capabilities: Granted = NOTHING_GRANTED
) -> ToolContext:
    """What the handler, or the probe, of a permitted call is told in this activity; `key` is that of its ticket."""
    ctx = permit.ctx
    last = permit.decisions[-1] if permit.decisions else None
    return ToolContext(
        actor_name=ctx.actor,
        session_id=ctx.session,
        turn_id=ctx.turn,
        call_id=permit.call,
        tenant_id=ctx.tenant,
        user_id=ctx.user.user,
        person_id=ctx.user.user,
        user=ctx.user,
        idempotency_key=key,
        approval_decision="approved" if permit.kind == "approved" else None,
        approval_reason=last.reason if last else "",
        decided_by=last.subject if last else "",
        dry_run=dry_run,
        attempt=activity.info().attempt,
        result_budget_chars=budget_chars,
        route=ctx.route,
        step=ctx.step,
        capabilities=capabilities,
    )


def redacted(text: str, args: Mapping[str, Any], secrets: Collection[str]) -> str:
    """`text` without the values of the secret arguments of `args`, which a failing handler likes to quote."""
    found: list[Any] = []
    hide(args, secrets, found.append)
    return without(text, {value for each in found for value in _texts(each)})


def _texts(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            stack.extend(item)
        elif not isinstance(item, bool | None) and len(str(item)) >= _LEAST_CHARS:
            yield str(item)
