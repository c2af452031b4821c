"""Approvals for the OpenAI Agents SDK: interruptions of a run are decided by a gate, and what becomes of them reported.

result = await settle(agent, await Runner.run(agent, "..."), gate)
"""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from agents import Agent, RunHooks, Runner, RunResult
from agents.items import ToolApprovalItem

from signoff_client.call import Call
from signoff_client.call_keys import CallKeys
from signoff_client.gate import Gate
from signoff_client.messages import same_arguments, to_text


async def settle(
    agent: Agent[Any],
    result: RunResult,
    gate: Gate,
    *,
    user: str | None = None,
    run: str | None = None,
    **options: Any,
) -> RunResult:
    """Decides the interruptions of a run and goes on with it until none is left; `options` are `Runner.run`'s.

    Arguments that people changed are told to the model: the call that it makes with them needs no other approval.
    Interruptions that are still waited for after the gate's `wait` are left in the result. Hooks of your own belong to
    the agent. `run` is your own id of this run: with it, a program that resumes the run's kept state finds its calls.
    """
    keys, done = CallKeys(run), set[str]()
    held: list[Call] = []
    while result.interruptions:
        asked = [(item, _find(held, item, gate, user, keys, result)) for item in result.interruptions]
        ids = Counter(_id(item) for item in result.interruptions)
        await asyncio.gather(*(call.settle() for _, call in asked))
        decided = [(item, call) for item, call in asked if call.state != "waiting"]
        if not decided:
            return result
        state, running = result.to_state(), _Reports(done)
        try:
            for item, call in decided:
                if ids[_id(item)] > 1:
                    # The SDK takes one decision for an id: it would run both calls with the approval of one.
                    words = "Not run: two calls of one answer have the same id. Make one call at a time."
                    state.reject(item, rejection_message=words)
                elif call.state == "permitted" and not same_arguments(call.status.args, _arguments(item)):
                    held.append(call)
                    note = f" ({call.status.note})" if call.status.note else ""
                    again = f"Call {call.tool} again with exactly these: {to_text(dict(call.status.args))}"
                    words = f"Not run: it was approved with other arguments{note}. {again}"
                    state.reject(item, rejection_message=words)
                elif await call.__aenter__() and same_arguments(call.args, _arguments(item)):
                    running.calls[_id(item)] = call
                    state.approve(item)
                else:
                    if call:
                        call.fail("it was not run: what was approved has changed since")
                        await call.__aexit__(None, None, None)
                    state.reject(item, rejection_message=call.text)
            result = await Runner.run(agent, state, hooks=running, **options)
        except BaseException as error:
            await running.leave(error)
            raise
        await running.leave(None)
    return result


class _Reports(RunHooks[Any]):
    def __init__(self, done: set[str]) -> None:
        self.calls: dict[str, Call] = {}
        self._done = done

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        # The SDK keeps its approval of an id: a later call with the same id would run without being asked about.
        if getattr(context, "tool_call_id", "") in self._done:
            raise RuntimeError("the model used the id of an approved call again; nothing was run: start another run")

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        call = self.calls.pop(getattr(context, "tool_call_id", ""), None)
        if call is not None:
            self._done.add(context.tool_call_id)
            call.result = result
            await call.__aexit__(None, None, None)

    async def leave(self, error: BaseException | None) -> None:
        # Of several that did not end it is not known whose error this is.
        own = error if len(self.calls) == 1 or not isinstance(error, Exception) else None
        for call in self.calls.values():
            await call.__aexit__(None if own is None else type(own), own, None)


def _find(
    held: list[Call], item: ToolApprovalItem, gate: Gate, user: str | None, keys: CallKeys, result: RunResult
) -> Call:
    """Returns the call that was approved with just these arguments, else a new one."""
    for call in held:
        if call.tool == item.tool_name and same_arguments(call.status.args, _arguments(item)):
            held.remove(call)
            return call
    key = keys.make(result.to_input_list(), _id(item))
    return gate.call(item.tool_name or "", _arguments(item), key=key, user=user)


def _id(item: ToolApprovalItem) -> str:
    return _field(item, "call_id") or _field(item, "id")


def _arguments(item: ToolApprovalItem) -> Mapping[str, Any]:
    try:
        found = json.loads(_field(item, "arguments"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _field(item: ToolApprovalItem, name: str) -> str:
    raw = item.raw_item
    return str((raw.get(name) if isinstance(raw, dict) else getattr(raw, name, None)) or "")
