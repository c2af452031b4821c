"""Approvals for the Claude Agent SDK: a gate decides an agent's calls and reports their outcomes.

options = ClaudeAgentOptions(hooks=approvals(gate, {"Bash", "Write", "mcp__shop__refund"}))
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final

from claude_agent_sdk import HookMatcher

from signoff_client.call import Call
from signoff_client.call_keys import call_key
from signoff_client.gate import Gate

_LONGEST: Final = 24 * 24 * 3600
"""Timeout of a hook in seconds: the largest that its timer can count. The default is one minute."""


def approvals(
    gate: Gate, tools: Collection[str] | Mapping[str, str], *, user: str | None = None
) -> dict[Any, list[HookMatcher]]:
    """Return hooks that propose calls of `tools`. A mapping gives each tool's name at the gateway.

    They decide before the SDK's own rules and modes, which cannot bypass them. A hook that fails blocks its call.
    """
    names = dict(tools) if isinstance(tools, Mapping) else {name: name for name in tools}
    hooks = _Hooks(gate, names, user)
    return {
        "PreToolUse": [HookMatcher(hooks=[hooks.ask], timeout=_LONGEST, on_failure="block")],
        "PostToolUse": [HookMatcher(hooks=[hooks.report])],
        "PostToolUseFailure": [HookMatcher(hooks=[hooks.report])],
    }


class _Hooks:
    def __init__(self, gate: Gate, tools: Mapping[str, str], user: str | None) -> None:
        self._gate, self._tools, self._user = gate, tools, user
        self._calls: dict[tuple[str, str], Call] = {}
        self._run: Counter[tuple[str, str]] = Counter()

    async def ask(self, event: Any, key: str | None, context: Any) -> Any:
        if event["tool_name"] not in self._tools:
            return {}
        name, args = self._tools[event["tool_name"]], event["tool_input"]
        place = _place(event)
        if place in self._calls:
            words = "Not run: a call with the same id is still running. Call again when it has ended."
            return _answer(permissionDecision="deny", permissionDecisionReason=words)
        # A resumed session asks again with the same id. After a call has run, its id means another call.
        key = call_key(*place, name, args, self._run[place])
        call = self._gate.call(name, args, key=key, user=self._user)
        if await call.__aenter__():
            self._calls[place] = call
            return _answer(permissionDecision="allow", updatedInput=call.args, additionalContext=call.note_text)
        return _answer(permissionDecision="deny", permissionDecisionReason=call.text)

    async def report(self, event: Any, key: str | None, context: Any) -> Any:
        call = self._calls.pop(_place(event), None)
        if call is not None:
            self._run[_place(event)] += 1
            # An interrupted call may have taken effect: it gets no result.
            if "tool_response" in event:
                call.result = _text(event["tool_response"])
            elif not event.get("is_interrupt"):
                call.fail(event["error"])
            await call.__aexit__(None, None, None)
        return {}


def _place(event: Any) -> tuple[str, str]:
    return event.get("session_id", ""), event["tool_use_id"]


def _answer(**fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **fields}}


def _text(response: Any) -> Any:
    """Objects of the SDK's own tools stay unchanged."""
    if isinstance(response, list) and all(isinstance(part, dict) and "text" in part for part in response):
        return "\n".join(part["text"] for part in response)
    return response
