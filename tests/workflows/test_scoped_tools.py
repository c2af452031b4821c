from typing import Any

import pytest
from some import some
from temporalio.api.enums.v1 import EventType
from turn_fixtures import AMOUNT_SCHEMA, Ledger, RunningTurns, TurnRig, pay_tool, yes

from signoff.contracts.ids import TurnKey
from signoff.contracts.turn import TurnView
from signoff.registry.actor import Actor, Route, Step
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.hooks import HookContext
from signoff.registry.tool import Tool
from signoff.testing.scripted_model import calls, respond

PAY = ("pay", {"amount": 20, "to": "Ana"})
SCRIPT = [calls(PAY), respond("done")]


def tool(ledger: Ledger, who: str, asks: bool = False, **fields: Any) -> Tool:
    return pay_tool(ledger, asks, handler=ledger.handler(who, who), **fields)


def layered(far: Tool, near: Tool, **fields: Any) -> Catalog:
    routes = (Route(name="trip", tools=(near,), steps=(Step(name="buy", mode="only", tools=("look",)),)),)
    look = pay_tool(Ledger(), False, name="look", effect="")
    given: dict[str, Any] = {"name": "desk", "model": "scripted:x:y", "routes": routes, "shadowing": "allow"}
    return build_catalog(tools=[far, look], actors=[Actor(**given | fields)])


async def activities(turns: RunningTurns, key: TurnKey) -> list[str]:
    history = await turns.client.get_workflow_handle(key.workflow_id).fetch_history()
    kinds = [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]
    return [kind for kind in kinds if not kind.startswith("signoff.")]


@pytest.mark.row("F08", "F30")
async def test_name_resolves_to_the_tool_of_the_turns_route(turn_rig: TurnRig, ledger: Ledger) -> None:
    catalog = layered(tool(ledger, "registry"), tool(ledger, "route"))
    async with turn_rig.running(catalog, SCRIPT) as turns:
        for route, who, kind in (("trip", "route", "pay@desk.trip"), ("", "registry", "pay")):
            key = await turns.start(route=route)
            result = await turns.signoff.result(key)
            assert [(each.tool, each.code, each.value.inline) for each in result.calls] == [("pay", "ok", who)]
            assert await activities(turns, key) == [kind]
            await turns.replays(key)
    assert [row[0] for row in ledger.rows] == ["route", "registry"]


@pytest.mark.row("X03")
async def test_shadowing_tool_asks_like_the_shadowed_one(turn_rig: TurnRig, ledger: Ledger) -> None:
    catalog = layered(tool(ledger, "registry", True), tool(ledger, "route"))
    near = some(catalog.tool("pay@desk.trip"))
    async with turn_rig.running(catalog, SCRIPT) as turns:
        key = await turns.start_waiting(route="trip")
        request = await turns.question(key)
        assert (request.definition, request.approvers) == (near.definition, ("role:approvers",))
        assert (await turns.signoff.decide(yes(key))).status == "accepted"
        assert [each.value.inline for each in (await turns.signoff.result(key)).calls] == ["route"]
    assert [row[0] for row in ledger.rows] == ["route"]


async def test_approval_does_not_carry_over_to_a_shadowing_tool(turn_rig: TurnRig, ledger: Ledger) -> None:
    far, near = tool(ledger, "registry", True), tool(ledger, "route", True)
    without = build_catalog(
        tools=[far], actors=[Actor(name="desk", model="scripted:x:y", routes=(Route(name="trip"),))]
    )
    async with turn_rig.running(without, SCRIPT) as turns:
        key = await turns.start_waiting(route="trip")
    async with turn_rig.running(layered(far, near), SCRIPT) as turns:
        assert (await turns.signoff.decide(yes(key))).status == "accepted"
        again = await turns.until(key, _asked_again)
        assert ledger.rows == []
        request = some(again.calls[0].approval)
        assert (
            await turns.signoff.decide(yes(key, revision=2, question_hash=request.question_hash))
        ).status == "accepted"
        assert [each.value.inline for each in (await turns.signoff.result(key)).calls] == ["route"]
    assert [row[0] for row in ledger.rows] == ["route"]


def _asked_again(view: TurnView) -> bool:
    request = view.calls[0].approval
    return request is not None and request.revision == 2 and request.state == "pending"


@pytest.mark.row("F34", "X07")
async def test_step_offers_only_its_tools_and_transient_ones(turn_rig: TurnRig, ledger: Ledger) -> None:
    catalog = layered(tool(ledger, "registry"), tool(ledger, "route", input_schema=AMOUNT_SCHEMA))
    async with turn_rig.running(catalog, SCRIPT) as turns:
        key = await turns.start(route="trip", step="buy")
        (outcome,) = (await turns.signoff.result(key)).calls
        assert (outcome.code, outcome.gate) == ("not_available", "layer")
        key = await turns.start(route="trip", step="buy", transient=("pay",))
        (outcome,) = (await turns.signoff.result(key)).calls
        assert (outcome.code, outcome.value.inline) == ("ok", "registry")
        assert await activities(turns, key) == ["pay@desk.trip.buy.*"]
        assert len(ledger.rows) == 1


@pytest.mark.row("F10", "N24")
async def test_unselected_tool_is_recorded_and_does_not_run(turn_rig: TurnRig) -> None:
    ledger, asked = Ledger(), []

    async def select(context: HookContext, data: dict[str, Any]) -> list[str]:
        asked.append(data)
        return ["look"] if len(asked) == 1 else ["look", "pay"]

    script = [calls(PAY), calls(PAY), respond("done")]
    tools = [tool(ledger, "registry"), pay_tool(ledger, False, name="look", effect="")]
    catalog = build_catalog(tools=tools, actors=[Actor(name="desk", model="scripted:x:y", select=select)])
    async with turn_rig.running(catalog, script) as turns:
        key = await turns.start(context={"data": {"city": "Porto"}})
        result = await turns.signoff.result(key)
        await turns.replays(key)
    assert [(each.code, each.gate) for each in result.calls] == [("not_available", "available"), ("ok", "execute")]
    assert asked == [{"city": "Porto"}] * 3
    assert len(ledger.rows) == 1
