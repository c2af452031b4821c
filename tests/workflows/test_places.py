import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from turn_fixtures import Ledger, RunningTurns, TurnRig, catalog_of, pay_tool, yes

from signoff.contracts.limits import MAX_TOOLS_AT_ONCE
from signoff.contracts.turn import TurnView
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.testing.scripted_model import calls, respond


@dataclass
class Gauge:
    """Handlers wait until `open` is set."""

    inside: list[str] = field(default_factory=list)
    beside: dict[str, tuple[str, ...]] = field(default_factory=dict)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    def tool(self, name: str, **fields: Any) -> Tool:
        async def run(args: dict[str, Any], ctx: ToolContext) -> Any:
            self.beside[ctx.call_id] = tuple(self.inside)
            self.inside.append(ctx.call_id)
            await self.open.wait()
            await asyncio.sleep(0.02)
            self.inside.remove(ctx.call_id)
            return args["amount"]

        return pay_tool(Ledger(), fields.pop("requires_approval", False), name=name, effect="", handler=run, **fields)


def proposed(*tools: str) -> list[Any]:
    return [calls(*((tool, {"amount": number}) for number, tool in enumerate(tools, 1))), respond("done")]


def states(*wanted: str) -> Callable[[TurnView], bool]:
    return lambda view: [call.state for call in view.calls] == list(wanted)


async def answers(turns: RunningTurns) -> list[Any]:
    key = await turns.start()
    await turns.signoff.result(key)
    await turns.replays(key)
    return [part.value.inline for part in await turns.results(key)]


@pytest.mark.row("X16", "F46")
async def test_at_most_ten_calls_of_a_batch_run_at_once(turn_rig: TurnRig) -> None:
    gauge = Gauge()
    script = proposed(*["look"] * 12)
    async with turn_rig.running([gauge.tool("look")], script) as turns:
        key = await turns.start()
        await turns.until(key, states(*["running"] * MAX_TOOLS_AT_ONCE, "proposed", "proposed"))
        while len(gauge.inside) < MAX_TOOLS_AT_ONCE:
            await asyncio.sleep(0.01)
        gauge.open.set()
        result = await turns.signoff.result(key)
        await turns.replays(key)
        entries = [part.value.inline for part in await turns.results(key)]
    assert [outcome.code for outcome in result.calls] == ["ok"] * 12
    assert entries == [str(number) for number in range(1, 13)]
    assert max(len(others) for others in gauge.beside.values()) < MAX_TOOLS_AT_ONCE


@pytest.mark.row("F46", "F47")
async def test_exclusive_tool_runs_alone(turn_rig: TurnRig) -> None:
    gauge = Gauge()
    gauge.open.set()
    tools = [gauge.tool("look"), gauge.tool("move", concurrency="exclusive")]
    script = proposed("look", "look", "move", "look", "move", "look")
    async with turn_rig.running(tools, script) as turns:
        found = await answers(turns)
    assert found == ["1", "2", "3", "4", "5", "6"]
    assert gauge.beside["c1.3"] == gauge.beside["c1.5"] == ()
    assert not {"c1.3", "c1.5"} & {other for others in gauge.beside.values() for other in others}
    begun = list(gauge.beside)
    assert set(begun[:2]) == {"c1.1", "c1.2"}
    assert begun[2:] == ["c1.3", "c1.4", "c1.5", "c1.6"]


@pytest.mark.row("X16", "B53")
async def test_calls_of_a_sequential_actor_run_in_order(turn_rig: TurnRig) -> None:
    gauge = Gauge()
    gauge.open.set()
    actor = Actor(name="desk", model="scripted", mode="sequential")
    catalog = catalog_of([gauge.tool("look")], actors=[actor])
    async with turn_rig.running(catalog, proposed(*["look"] * 4)) as turns:
        found = await answers(turns)
    assert found == ["1", "2", "3", "4"]
    assert gauge.beside == {"c1.1": (), "c1.2": (), "c1.3": (), "c1.4": ()}
    assert list(gauge.beside) == ["c1.1", "c1.2", "c1.3", "c1.4"]


@pytest.mark.row("F46")
async def test_call_waiting_for_approval_does_not_block_others(turn_rig: TurnRig) -> None:
    gauge = Gauge()
    tools = [gauge.tool("look"), gauge.tool("move", concurrency="exclusive", requires_approval=True)]
    async with turn_rig.running(tools, proposed("move", "look", "look")) as turns:
        key = await turns.start()
        await turns.until(key, states("waiting", "running", "running"))
        while len(gauge.inside) < 2:
            await asyncio.sleep(0.01)
        await turns.signoff.decide(yes(key))
        # Approved, but still queued.
        await turns.until(key, states("waiting", "running", "running"))
        gauge.open.set()
        result = await turns.signoff.result(key)
        await turns.replays(key)
    assert [outcome.code for outcome in result.calls] == ["ok"] * 3
    assert list(gauge.beside)[2] == "c1.1"
    assert gauge.beside["c1.1"] == ()


async def test_approval_that_lapses_in_the_queue_is_asked_again(turn_rig: TurnRig) -> None:
    gauge = Gauge()
    policy = ApprovalPolicy(grant_ttl=0.05)
    tools = [gauge.tool("look"), gauge.tool("move", concurrency="exclusive", requires_approval=policy)]
    async with turn_rig.running(tools, proposed("look", "move")) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key, "c1.2"))
        await asyncio.sleep(0.1)
        gauge.open.set()
        await turns.until(key, lambda view: view.calls[1].approval is not None and view.calls[1].approval.revision == 2)
        assert (await turns.question(key, "c1.2")).revision == 2
        await turns.signoff.cancel_turn(key)
        await turns.signoff.result(key)
        await turns.replays(key)
    assert list(gauge.beside) == ["c1.1"]


@pytest.mark.row("F49")
async def test_queued_call_of_a_cancelled_turn_is_skipped(turn_rig: TurnRig) -> None:
    gauge = Gauge()
    tools = [gauge.tool("move", concurrency="exclusive")]
    async with turn_rig.running(tools, proposed("move", "move")) as turns:
        key = await turns.start()
        await turns.until(key, states("running", "proposed"))
        while not gauge.inside:
            await asyncio.sleep(0.01)
        await turns.signoff.cancel_turn(key)
        await turns.until(key, states("running", "skipped"))
        gauge.open.set()
        result = await turns.signoff.result(key)
        await turns.replays(key)
    assert result.state == "cancelled"
    assert [(outcome.code, outcome.value.inline) for outcome in result.calls][1:] == [
        ("skipped", "Not executed: the turn was cancelled.")
    ]
    assert list(gauge.beside) == ["c1.1"]
