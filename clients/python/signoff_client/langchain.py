"""Approvals for LangChain: calls of an agent's tools are decided by a gate, and what becomes of them is reported.

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
    """Asks before one of `tools` is run; a mapping says what each is called at the gateway."""

    def __init__(self, gate: Gate, tools: Collection[str] | Mapping[str, str], *, user: str | None = None) -> None:
        super().__init__()
        self._gate, self._user = gate, user
        self._tools = dict(tools) if isinstance(tools, Mapping) else {name: name for name in tools}

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Runs the call where it may be, with what was approved; else its message says why not."""
        if request.tool_call["name"] not in self._tools:
            return await handler(request)
        async with self._call(request) as call:
            if call:
                return _take_answer(call, await handler(_approve(request, call)))
        return _explain(request, call)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """Does the same without an event loop."""
        if request.tool_call["name"] not in self._tools:
            return handler(request)
        with self._call(request) as call:
            if call:
                return _take_answer(call, handler(_approve(request, call)))
        return _explain(request, call)

    def _call(self, request: ToolCallRequest) -> Call:
        made = request.tool_call
        name = self._tools[made["name"]]
        return self._gate.call(name, made["args"], key=_key(request), user=self._user)


def _key(request: ToolCallRequest) -> str | None:
    """Return the key of a call; None where the graph's state does not hold the message that made it."""
    thread = (getattr(request.runtime, "config", None) or {}).get("configurable", {}).get("thread_id", "")
    messages = request.state.get("messages", []) if isinstance(request.state, dict) else []
    for at in range(len(messages) - 1, -1, -1):
        made = getattr(messages[at], "tool_calls", None) or []
        if request.tool_call in made:
            # LangGraph gives every message an id, and keeps it through checkpoints.
            conversation, message = str(thread) or messages[0].id, messages[at].id
            return call_key(conversation, message, made.index(request.tool_call)) if conversation and message else None
    return None


def _approve(request: ToolCallRequest, call: Call) -> ToolCallRequest:
    return request.override(tool_call={**request.tool_call, "args": call.args})


def _take_answer(call: Call, answer: Any) -> Any:
    # A `Command` changes the graph's state; its text is what can be said of it.
    call.result = answer.content if isinstance(answer, ToolMessage) else str(answer)
    if isinstance(answer, ToolMessage) and answer.status == "error":
        call.fail(str(answer.content))
    if call.is_edited and isinstance(answer, ToolMessage) and isinstance(answer.content, str):
        return answer.model_copy(update={"content": f"{answer.content}\n({call.edit_text})"})
    return answer


def _explain(request: ToolCallRequest, call: Call) -> ToolMessage:
    has_run = (call.state, call.status.code) == ("ended", "ok")
    made = request.tool_call
    return ToolMessage(call.text, tool_call_id=made["id"], name=made["name"], status="success" if has_run else "error")
