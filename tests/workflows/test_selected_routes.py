from collections.abc import Iterable
from typing import Any

import pytest
from turn_fixtures import Ledger, TurnRig, pay_tool

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.registry.actor import Actor, Route, Step
from signoff.registry.catalog import build_catalog
from signoff.registry.hooks import HookContext
from signoff.testing.scripted_model import ScriptedModel, calls, respond, results


def tenant_routes(tenant: str, data: dict[str, Any]) -> Iterable[str]:
    return {"main": ["europe", *(["overseas"] if "country" in data else [])]}[tenant]


@pytest.mark.row("F10")
async def test_route_select_chooses_a_tenants_routes_by_context_and_data(turn_rig: TurnRig) -> None:
    # `routes: ({context}) => createTenantRoutes(context.tenantId)`: an unselected route offers and runs nothing. If
    # the function fails, no route does.
    ledger, result, fails = Ledger(), list[list[str]](), [False]

    async def routes(context: HookContext, data: dict[str, Any]) -> Iterable[str]:
        if fails[0]:
            raise RuntimeError("no directory of tenants")
        return tenant_routes(context.tenant, data)

    def react(request: CompletionRequest) -> Completion:
        result.append([tool.name for tool in request.tools])
        return respond("done") if results(request) else calls(("pay", {"amount": 20, "to": "Ana"}))

    actor = Actor(
        name="desk",
        model="scripted",
        routes=tuple(Route(name=name, tools=("pay",)) for name in ("europe", "overseas")),
        route_select=routes,
    )
    catalog = build_catalog(tools=[pay_tool(ledger, False)], actors=[actor])
    async with turn_rig.running(catalog, ScriptedModel(react)) as turns:

        async def codes(**where: Any) -> list[str]:
            key = await turns.start(**where)
            found = await turns.signoff.result(key)
            await turns.replays(key)
            return [f"{call.code} {call.gate}" for call in found.calls]

        there = await codes(route="europe")
        missing = await codes(route="overseas")
        with_data = await codes(route="overseas", context={"data": {"country": "Brazil"}})
        fails[0] = True
        failed = await codes(route="europe")
    assert [there, missing, with_data, failed] == [
        ["ok execute"], ["not_available available"], ["ok execute"], ["not_available available"],
    ]  # fmt: skip
    assert result == [["pay", "respond"]] * 2 + [["respond"]] * 2 + [["pay", "respond"]] * 2 + [["respond"]] * 2
    assert len(ledger.rows) == 2


async def test_step_of_an_unselected_route_offers_no_collect(turn_rig: TurnRig) -> None:
    async def routes(context: HookContext, data: dict[str, Any]) -> Iterable[str]:
        return ["europe"]

    seen: list[list[str]] = []

    def react(request: CompletionRequest) -> Completion:
        seen.append([tool.name for tool in request.tools])
        return respond("done")

    steps = (Step(name="ask", collect={"city": None}),)
    actor = Actor(
        name="desk",
        model="scripted",
        routes=tuple(Route(name=name, steps=steps) for name in ("europe", "overseas")),
        route_select=routes,
    )
    async with turn_rig.running(build_catalog(actors=[actor]), ScriptedModel(react)) as turns:
        for route in ("europe", "overseas"):
            await turns.signoff.result(await turns.start(route=route))
    assert seen == [["collect", "respond"], ["respond"]]
