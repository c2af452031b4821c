"""The routes of coding agents' hooks: each takes what the hook sends as it is, and answers in the hook's own shape."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from fastapi import Query, Request
from pydantic import ValidationError

from signoff.calls import Calls, naming
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.errors import SignoffError
from signoff.contracts.requests import sentence
from signoff.plugins import BasePlugin, PluginRouter
from signoff.plugins.hooks.hook_answer import SILENT, HookAnswer, deny
from signoff.plugins.hooks.hook_calls import HookCalls
from signoff.plugins.hooks.hook_event import GATES, HookBody

router = PluginRouter("/v1/hooks", tag="calls")

HOLD_SECONDS = 50.0
"""How long a hook is held that says nothing of it: proxies give up at a minute."""
LONGEST_HOLD_SECONDS = 3_600.0
"""The longest that a hook may be held."""

Hold = Annotated[
    float, Query(ge=0, le=LONGEST_HOLD_SECONDS, description="Seconds to wait for people; below the hook's time-out.")
]
Defer = Annotated[
    bool, Query(description="End a `-p` run that waits with `defer`, to be resumed later; a session passes over it.")
]
Agent = Annotated[str | None, Query(description="In development, whose calls they are; needless with one agent.")]
User = Annotated[str | None, Query(description="In whose name, by id; needless where the agent acts for one alone.")]


@router.post("/claude-code", summary="A hook of Claude Code", reports=True)
async def answer_claude_code(
    event: HookBody,
    calls: Calls,
    request: Request,
    hold: Hold = HOLD_SECONDS,
    defer: Defer = False,
    agent: Agent = None,
    user: User = None,
) -> dict[str, Any]:
    """`PreToolUse` and `PermissionRequest` are answered whether the call may run; `PostToolUse` and
    `PostToolUseFailure` report it. Any other event is answered with nothing.
    """
    return await _answer(HookCalls(calls, request, "claude-code", agent, user, hold, defer), event)


@router.post("/codex", summary="A hook of Codex", reports=True)
async def answer_codex(
    event: HookBody,
    calls: Calls,
    request: Request,
    hold: Hold = HOLD_SECONDS,
    agent: Agent = None,
    user: User = None,
) -> dict[str, Any]:
    """The same in the shape that Codex reads: a call that may run unchanged is answered with nothing."""
    return await _answer(HookCalls(calls, request, "codex", agent, user, hold, False), event)


async def _answer(calls: HookCalls, event: HookBody) -> HookAnswer:
    outcome = event.outcome
    if outcome is not None:
        try:
            return await calls.report(event, outcome)
        except (ValidationError, NotCanonical):
            # No call that could have been permitted.
            return SILENT
    if event.hook_event_name not in GATES:
        return SILENT
    try:
        with naming("`tool_use_id`", event.tool_use_id):
            return await calls.gate(event)
    except ValidationError as error:
        return deny(event, f"Not run: {sentence(error.errors())}")
    except SignoffError as error:
        await calls.calls.note_refusal(error, event.tool_name)
        # In the hook's own way of saying no: by default a status that is no success lets the call run.
        return deny(event, f"Not run: {error.message}")


class HooksPlugin(BasePlugin):
    """Adds the routes of coding agents' hooks."""

    name: ClassVar[str] = "hooks"

    def routers(self) -> Sequence[PluginRouter]:
        """Return the router."""
        return (router,)
