"""Approvals for the OpenAI Agents SDK: a gate decides interruptions of a run and reports the outcomes.

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
    """Decide the interruptions of a run and resume it until none is left. `options` go to `Runner.run`.

    The model is asked to repeat a call with edited arguments. That call needs no second approval. Interruptions that
    still wait after the gate's `wait` stay in the result. Put hooks of your own on the agent. `run` is your id of this
    run: a program that resumes the run's stored state finds its calls by it.
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
                    # The SDK takes one decision for each id: it would run both calls with one approval.
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
                        call.fail("it was not run: the approved arguments have changed since")
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
        # The SDK keeps its approval of an id: a later call with the same id would run without approval.
        if getattr(context, "tool_call_id", "") in self._done:
            raise RuntimeError("the model reused the id of an approved call, so nothing was run: start another run")

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        call = self.calls.pop(getattr(context, "tool_call_id", ""), None)
        if call is not None:
            self._done.add(context.tool_call_id)
            call.result = result
            await call.__aexit__(None, None, None)

    async def leave(self, error: BaseException | None) -> None:
        # If several calls did not end, the error may belong to any of them.
        own = error if len(self.calls) == 1 or not isinstance(error, Exception) else None
        for call in self.calls.values():
            await call.__aexit__(None if own is None else type(own), own, None)


def _find(
    held: list[Call], item: ToolApprovalItem, gate: Gate, user: str | None, keys: CallKeys, result: RunResult
) -> Call:
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
        args = json.loads(_field(item, "arguments"))
    except ValueError:
        return {}
    return args if isinstance(args, dict) else {}


def _field(item: ToolApprovalItem, name: str) -> str:
    raw = item.raw_item
    return str((raw.get(name) if isinstance(raw, dict) else getattr(raw, name, None)) or "")
