import asyncio
from typing import Any

import pytest
from tables import table
from turn_fixtures import Ledger, RunningTurns, TurnRig, catalog_of, no, pay_tool, yes

from signoff.contracts.call import CallOutcome
from signoff.contracts.ids import TurnKey
from signoff.contracts.turn import TurnResult
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.testing.scripted_model import calls, respond
from signoff.workflows import outcomes

ABORTED = "Not executed: another call of the same completion failed."
STRICT = Actor(name="desk", model="scripted", on_failure="abort_siblings")


class Scene:
    def __init__(self) -> None:
        self.inside: set[str] = set()
        self.gates: dict[str, asyncio.Event] = {}

    def tool(self, name: str, *, fails: bool = False, asks: bool = False, **fields: Any) -> Tool:
        gate = self.gates.setdefault(name, asyncio.Event())

        async def run(args: dict[str, Any], ctx: ToolContext) -> Any:
            self.inside.add(name)
            await gate.wait()
            if fails:
                raise ValueError("no such account")
            return "done"

        return pay_tool(Ledger(), asks, name=name, effect="", handler=run, **fields)

    async def entered(self, *names: str) -> None:
        while not self.inside.issuperset(names):
            await asyncio.sleep(0.01)

    def catalog(self, *tools: Tool, actor: Actor = STRICT) -> Catalog:
        return catalog_of(tools, actors=[actor])


def at_once(*names: str) -> list[Any]:
    return [calls(*((name, {"amount": number}) for number, name in enumerate(names, 1))), respond("done")]


async def ended(turns: RunningTurns, key: TurnKey) -> TurnResult:
    """Return the turn's result after checking that its history replays on another worker."""
    result = await turns.signoff.result(key)
    await turns.replays(key)
    return result


def codes(result: TurnResult) -> list[str]:
    return [outcome.code for outcome in result.calls]


@pytest.mark.row("X17")
async def test_failure_leaves_its_siblings_alone_by_default(turn_rig: TurnRig) -> None:
    scene = Scene()
    catalog = scene.catalog(
        scene.tool("bad", fails=True), scene.tool("look", read_only=True), actor=Actor(name="desk", model="scripted")
    )
    async with turn_rig.running(catalog, at_once("bad", "look")) as turns:
        key = await turns.start()
        await scene.entered("bad", "look")
        scene.gates["bad"].set()
        await turns.until(key, lambda view: view.calls[0].state == "execution_failed")
        scene.gates["look"].set()
        assert codes(await ended(turns, key)) == ["execution_failed", "ok"]


@pytest.mark.row("X17", "F48", "F49")
@pytest.mark.usefixtures("quick_heartbeats")
async def test_failure_stops_siblings_that_only_read_or_have_not_started(turn_rig: TurnRig) -> None:
    scene = Scene()
    catalog = scene.catalog(
        scene.tool("bad", fails=True),
        scene.tool("look", read_only=True),
        scene.tool("book"),
        scene.tool("move", concurrency="exclusive"),
        scene.tool("pay", asks=True),
    )
    async with turn_rig.running(catalog, at_once("bad", "look", "book", "move", "pay")) as turns:
        key = await turns.start_waiting()
        await scene.entered("bad", "look", "book")
        scene.gates["bad"].set()
        view = await turns.until(
            key, lambda view: {"proposed", "waiting"}.isdisjoint(call.state for call in view.calls)
        )
        assert view.calls[2].state == "running"
        scene.gates["book"].set()
        result = await ended(turns, key)
        entries = [(part.call, part.code, part.value.inline) for part in await turns.results(key)]
    assert codes(result) == ["execution_failed", "skipped", "ok", "skipped", "skipped"]
    assert entries == [
        ("c1.1", "execution_failed", "no such account"),
        ("c1.2", "skipped", ABORTED),
        ("c1.3", "ok", "done"),
        ("c1.4", "skipped", ABORTED),
        ("c1.5", "skipped", ABORTED),
    ]
    asked = view.calls[4].approval
    assert asked is not None
    assert (asked.state, asked.reason, asked.decided_by) == (
        "cancelled",
        "Another call of the same completion failed.",
        "",
    )
    assert scene.inside == {"bad", "look", "book"}


@pytest.mark.row("X17")
async def test_approved_call_is_never_aborted(turn_rig: TurnRig) -> None:
    scene = Scene()
    catalog = scene.catalog(
        scene.tool("bad", fails=True),
        scene.tool("look", asks=True, read_only=True),
        scene.tool("move", asks=True, concurrency="exclusive"),
    )
    async with turn_rig.running(catalog, at_once("bad", "look", "move")) as turns:
        key = await turns.start()
        await turns.waiting(key, 2)
        await turns.signoff.decide(yes(key, "c1.2"))
        await scene.entered("bad", "look")
        await turns.signoff.decide(yes(key, "c1.3"))
        scene.gates["bad"].set()
        await turns.until(key, lambda view: view.calls[0].state == "execution_failed")
        scene.gates["look"].set()
        scene.gates["move"].set()
        assert codes(await ended(turns, key)) == ["execution_failed", "ok", "ok"]


@pytest.mark.row("X17", "F48", "N19")
async def test_denied_or_invalid_call_aborts_no_sibling(turn_rig: TurnRig) -> None:
    scene = Scene()
    catalog = scene.catalog(scene.tool("pay", asks=True), scene.tool("look", read_only=True))
    script = [calls(("pay", {"amount": 1}), ("look", {"amount": 2}), ("look", {"amount": "?"})), respond("done")]
    async with turn_rig.running(catalog, script) as turns:
        key = await turns.start_waiting()
        await scene.entered("look")
        await turns.signoff.decide(no(key))
        await turns.until(key, lambda view: view.calls[0].state == "denied")
        scene.gates["look"].set()
        assert codes(await ended(turns, key)) == ["denied", "ok", "input_invalid"]


@pytest.mark.usefixtures("quick_heartbeats")
async def test_fallback_stopped_while_it_waits_leaves_the_failure_visible(turn_rig: TurnRig) -> None:
    scene = Scene()
    catalog = scene.catalog(
        scene.tool("book", fails=True, idempotent=True, fallbacks=("older",)),
        scene.tool("bad", fails=True),
        scene.tool("look", read_only=True),
        scene.tool("older", asks=True),
    )
    scene.gates["book"].set()
    async with turn_rig.running(catalog, at_once("book", "bad", "look")) as turns:
        key = await turns.start_waiting()
        await scene.entered("bad", "look")
        scene.gates["bad"].set()
        result = await ended(turns, key)
        [results, *_] = await turns.results(key)
    assert codes(result) == ["execution_failed", "execution_failed", "skipped"]
    assert (results.value.inline, results.note) == (
        "no such account",
        f"`older` was to be tried in its place. {ABORTED}",
    )
    assert (result.calls[0].fallback, scene.inside) == ("", {"book", "bad", "look"})


@table("stopped", outcomes.aborted_outcome, outcomes.unwanted_outcome)
def test_failure_with_a_stopped_fallback_stops_siblings(stopped: Any) -> None:
    failed = CallOutcome(call="c1.1", tool="book", code="execution_failed", gate="execute")
    found = outcomes.fallback_outcome(failed, [stopped("c1.1001", "older")])
    assert (found.code, found.tool, outcomes.stops_siblings(failed, found)) == ("execution_failed", "book", True)


@pytest.mark.row("F45")
async def test_sequential_batch_stops_at_the_first_failure(turn_rig: TurnRig) -> None:
    scene = Scene()
    actor = Actor(name="desk", model="scripted", mode="sequential", on_failure="abort_siblings")
    catalog = scene.catalog(scene.tool("book"), scene.tool("bad", fails=True), actor=actor)
    script = [*at_once("book", "bad", "book")[:1], calls(("book", {"amount": 9})), respond("done")]
    for gate in scene.gates.values():
        gate.set()
    async with turn_rig.running(catalog, script) as turns:
        assert codes(await ended(turns, await turns.start())) == ["ok", "execution_failed", "skipped", "ok"]
