"""Approvals for LangChain: a gate decides calls of an agent's tools and reports their outcomes.

agent = create_agent(model, tools, middleware=[Approvals(gate, {"refund"})])
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ToolCallRequest
from langchain.messages import ToolMessage

from signoff_client.call import Call
from signoff_client.call_keys import call_key
from signoff_client.gate import Gate


class Approvals(AgentMiddleware):
    """Proposes calls of `tools` before they run. A mapping gives each tool's name at the gateway."""

    def __init__(self, gate: Gate, tools: Collection[str] | Mapping[str, str], *, user: str | None = None) -> None:
        super().__init__()
        self._gate, self._user = gate, user
        self._tools = dict(tools) if isinstance(tools, Mapping) else {name: name for name in tools}

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Run the call with the approved arguments, or explain in its message why it was not permitted."""
        if request.tool_call["name"] not in self._tools:
            return await handler(request)
        async with self._call(request) as call:
            if call:
                return _take_answer(call, await handler(_approve(request, call)))
        return _explain(request, call)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        if request.tool_call["name"] not in self._tools:
            return handler(request)
        with self._call(request) as call:
            if call:
                return _take_answer(call, handler(_approve(request, call)))
        return _explain(request, call)

    def _call(self, request: ToolCallRequest) -> Call:
        tool_call = request.tool_call
        name = self._tools[tool_call["name"]]
        return self._gate.call(name, tool_call["args"], key=_key(request), user=self._user)


def _key(request: ToolCallRequest) -> str | None:
    """Return `None` if the graph's state lacks the call's message."""
    thread = (getattr(request.runtime, "config", None) or {}).get("configurable", {}).get("thread_id", "")
    messages = request.state.get("messages", []) if isinstance(request.state, dict) else []
    for at in range(len(messages) - 1, -1, -1):
        tool_calls = getattr(messages[at], "tool_calls", None) or []
        if request.tool_call in tool_calls:
            # LangGraph gives every message an id, and keeps it through checkpoints.
            conversation, message = str(thread) or messages[0].id, messages[at].id
            return (
                call_key(conversation, message, tool_calls.index(request.tool_call))
                if conversation and message
                else None
            )
    return None


def _approve(request: ToolCallRequest, call: Call) -> ToolCallRequest:
    return request.override(tool_call={**request.tool_call, "args": call.args})


def _take_answer(call: Call, answer: Any) -> Any:
    # A `Command` changes the graph's state. Report its text.
    call.result = answer.content if isinstance(answer, ToolMessage) else str(answer)
    if isinstance(answer, ToolMessage) and answer.status == "error":
        call.fail(str(answer.content))
    if call.note_text and isinstance(answer, ToolMessage) and isinstance(answer.content, str):
        return answer.model_copy(update={"content": f"{answer.content}\n({call.note_text})"})
    return answer


def _explain(request: ToolCallRequest, call: Call) -> ToolMessage:
    has_run = (call.state, call.status.code) == ("ended", "ok")
    tool_call = request.tool_call
    return ToolMessage(
        call.text, tool_call_id=tool_call["id"], name=tool_call["name"], status="success" if has_run else "error"
    )
