"""Approvals for Pydantic AI: a gate decides calls of tools that require approval, and reports them.

agent = Agent(..., capabilities=[approvals(gate)])
@agent.tool_plain(requires_approval=True)
"""

import asyncio
from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturn
from pydantic_ai.tools import (
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    ToolApproved,
    ToolDefinition,
    ToolDenied,
)

from signoff_client.call import Call
from signoff_client.call_keys import call_key
from signoff_client.gate import Gate
from signoff_client.messages import same_arguments


def approvals(gate: Gate, *, user: str | None = None) -> AbstractCapability[Any]:
    """Return a capability that has calls decided while the agent runs.

    A call that still waits after the gate's `wait` stays deferred: the run ends with it as `DeferredToolRequests`. A
    later run with the same messages finds the same call.
    """
    return _Approvals(gate, user)


class _Approvals(AbstractCapability[Any]):
    def __init__(self, gate: Gate, user: str | None) -> None:
        self._gate, self._user = gate, user
        self._calls: dict[str, Call] = {}

    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        return _Approvals(self._gate, self._user)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        asked = {
            each.tool_call_id: self._gate.call(
                each.tool_name, each.args_as_dict(), key=_key(ctx, each), user=self._user
            )
            for each in requests.approvals
        }
        await asyncio.gather(*(call.settle() for call in asked.values()))
        decided = {name: call for name, call in asked.items() if call.state != "waiting"}
        self._calls |= decided
        if not decided:
            return None
        return requests.build_results(approvals={name: _answer(call) for name, call in decided.items()})

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any], handler: Any
    ) -> Any:
        gate_call = self._calls.pop(call.tool_call_id, None)
        if gate_call is None:
            return await handler(args)
        approved = dict(gate_call.status.args)
        async with gate_call:
            if gate_call and same_arguments(gate_call.args, approved):
                gate_call.result = await handler(args)
                return _with_note(gate_call.result, gate_call.note_text)
            if gate_call:
                gate_call.fail("it was not run: the approved arguments have changed since")
        return gate_call.text


def _key(ctx: RunContext[Any], part: ToolCallPart) -> str | None:
    """Return `None` if the run's messages lack the call."""
    for message in reversed(ctx.messages):
        if isinstance(message, ModelResponse) and part.tool_call_id in [
            each.tool_call_id for each in message.tool_calls
        ]:
            at = [each.tool_call_id for each in message.tool_calls].index(part.tool_call_id)
            return call_key(ctx.conversation_id or "", message.run_id, message.timestamp.isoformat(), at)
    return None


def _answer(call: Call) -> ToolApproved | ToolDenied:
    if call.state == "permitted":
        return ToolApproved(override_args=dict(call.status.args) if call.is_edited else None)
    # A call that Signoff itself ran counts as approved: `wrap_tool_execute` returns its result.
    return ToolApproved() if (call.state, call.status.code) == ("ended", "ok") else ToolDenied(call.text)


def _with_note(result: Any, note: str) -> Any:
    if not note or isinstance(result, ToolReturn):
        return result
    return f"{result}\n({note})" if isinstance(result, str) else ToolReturn(result, content=note)
