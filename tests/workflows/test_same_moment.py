"""A call that ends at the moment of its cancellation keeps its result, because it may have had an effect."""

import asyncio
import contextlib
from typing import Any

import pytest
from turn_fixtures import Ledger, TurnRig, catalog_of, pay_tool, running_turns

from signoff.contracts.turn import TurnResult
from signoff.registry.actor import Actor
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.testing.scripted_model import calls, respond


class Elsewhere:
    """The tools continue while no worker serves turns."""

    def __init__(self, task_queue: str) -> None:
        self.task_queue = f"{task_queue}-tools"
        self.gates: dict[str, asyncio.Event] = {}
        self.inside: set[str] = set()

    def tool(self, name: str, *, fails: bool = False, **fields: Any) -> Tool:
        gate = self.gates.setdefault(name, asyncio.Event())

        async def run(args: dict[str, Any], ctx: ToolContext) -> str:
            self.inside.add(name)
            await gate.wait()
            if fails:
                raise ValueError("no such account")
            return "done"

        return pay_tool(Ledger(), False, name=name, effect="", handler=run, task_queue=self.task_queue, **fields)


async def ended_at_once(
    turn_rig: TurnRig, tools: list[Tool], elsewhere: Elsewhere, actor: Actor, cancel: bool
) -> TurnResult:
    catalog = catalog_of(tools, actors=[actor])
    script = [calls(*((tool.name, {"amount": 1}) for tool in tools)), respond("done")]
    async with contextlib.AsyncExitStack() as stack:
        tools_turns = await stack.enter_async_context(
            running_turns(turn_rig.client, turn_rig.store, elsewhere.task_queue, catalog, script)
        )
        async with turn_rig.running(catalog, script) as turns:
            key = await turns.start()
            while len(elsewhere.inside) < len(tools):
                await asyncio.sleep(0.01)
        if cancel:
            await tools_turns.signoff.cancel_turn(key)
        for count, tool in enumerate(tools, 2):
            elsewhere.gates[tool.name].set()
            await tools_turns.happened(key, "ACTIVITY_TASK_COMPLETED", count)
        async with turn_rig.running(catalog, script) as turns:
            result = await turns.signoff.result(key)
            await turns.replays(key)
    return result


@pytest.mark.row("N03", "F49")
async def test_calls_that_end_during_a_cancellation_keep_their_results(turn_rig: TurnRig) -> None:
    elsewhere = Elsewhere(turn_rig.task_queue)
    tools = [elsewhere.tool("look", read_only=True), elsewhere.tool("act")]
    actor = Actor(name="desk", model="scripted")
    result = await ended_at_once(turn_rig, tools, elsewhere, actor, cancel=True)
    assert result.state == "cancelled"
    assert [(each.tool, each.code) for each in result.calls] == [("look", "ok"), ("act", "ok")]


@pytest.mark.row("X17")
async def test_call_that_ends_during_a_siblings_failure_keeps_its_result(turn_rig: TurnRig) -> None:
    elsewhere = Elsewhere(turn_rig.task_queue)
    tools = [elsewhere.tool("bad", fails=True), elsewhere.tool("look", read_only=True)]
    actor = Actor(name="desk", model="scripted", on_failure="abort_siblings")
    result = await ended_at_once(turn_rig, tools, elsewhere, actor, cancel=False)
    assert result.state == "complete"
    assert [(each.tool, each.code) for each in result.calls] == [("bad", "execution_failed"), ("look", "ok")]
