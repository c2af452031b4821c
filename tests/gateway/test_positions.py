import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from gateway_login import bearer, locked_rig, token_of
from gateway_rig import GatewayRig, fresh, gateway_rig
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.contracts.errors import NotFound
from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Person
from signoff.contracts.turn import TurnResult
from signoff.people.directory import FixedDirectory
from signoff.registry.actor import Actor, Route, Step
from signoff.registry.catalog import Catalog
from signoff.store.store import Store, open_store


def till_catalog(ledger: Ledger) -> Catalog:
    pay = pay_tool(ledger, False, name="small")
    till = Route(name="till", steps=(Step(name="look"), Step(name="pay", tools=(pay,))))
    alone = Route(name="alone", mode="only")
    actors = [Actor(name="desk", model="scripted", routes=(till, alone)), Actor(name="plain", model="scripted")]
    return catalog_of([pay_tool(ledger, False, name="refund")], actors=actors)


@pytest.fixture(scope="module")
async def till(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayRig]:
    queue = f"till-{uuid.uuid4().hex[:12]}"
    async with (
        open_store(f"sqlite:///{tmp_path_factory.mktemp('till')}/signoff.db") as store,
        gateway_rig(client, store, queue, catalog_of_ledger=till_catalog) as rig,
    ):
        yield rig


async def ended(till: GatewayRig, name: str) -> dict[str, Any]:
    while True:
        view: dict[str, Any] = (await till.http.get(f"/v1/turns/{name}")).json()
        if view.get("result"):
            return view
        await asyncio.sleep(0.05)


ELSEWHERE: dict[str, Any] = {"text": "small", "actor": "desk", "route": "till"}
BROUGHT: dict[str, Any] = {"text": "refund", "actor": "desk", "route": "alone"}


@pytest.mark.row("F34")
@pytest.mark.parametrize(
    ("given", "code"),
    [
        (ELSEWHERE | {"step": "pay"}, "ok"),
        (ELSEWHERE | {"step": "look"}, "not_available"),
        (ELSEWHERE, "not_available"),
        ({"text": "small"}, "not_available"),
        (BROUGHT | {"transient": ["refund"]}, "ok"),
        (BROUGHT | {"transient": []}, "not_available"),
    ],
)
async def test_turn_starts_at_the_requested_step_with_its_transient_tool(
    till: GatewayRig, given: dict[str, Any], code: str
) -> None:
    before = len(till.ledger.rows)
    view = await ended(till, ".".join(await till.start(**given)))
    assert [call["outcome"]["code"] for call in view["calls"]] == [code]
    assert len(till.ledger.rows) - before == (code == "ok")


@pytest.mark.row("F34")
@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (ELSEWHERE | {"step": "pay"}, {"text": "small"}, "ok"),
        (ELSEWHERE | {"step": "pay"}, ELSEWHERE | {"step": "look"}, "not_available"),
        (ELSEWHERE | {"step": "pay"}, {"text": "small", "actor": "plain"}, "not_available"),
        (BROUGHT | {"transient": ["refund"]}, BROUGHT | {"transient": []}, "not_available"),
    ],
)
async def test_session_stays_on_its_route_but_loses_a_transient_tool(
    till: GatewayRig, first: dict[str, Any], second: dict[str, Any], code: str
) -> None:
    path = f"/v1/sessions/{fresh()}/messages"
    codes = []
    for given in (first, second):
        body = (await till.http.post(path, json=given)).json()
        view = await ended(till, f"{body['id']}.{body['turn']}")
        codes += [call["outcome"]["code"] for call in view["calls"]]
    assert codes == ["ok", code]


async def test_signed_requester_stays_on_the_route_that_the_gateway_sealed(
    client: Client, store: Store, task_queue: str
) -> None:
    # The gateway signs such a message without a route. Its turn runs by the session's seal.
    people = (Person(id="guest", name="Guest", may_set=("route", "step")),)
    worker: dict[str, Any] = {"profile": "production", "people": FixedDirectory(people)}
    async with gateway_rig(client, store, task_queue, catalog_of_ledger=till_catalog, **worker) as found:
        rig = locked_rig(found, people=people)
        headers, path = bearer(await token_of(rig, "guest")), "/v1/sessions/talk/messages"
        for given in (ELSEWHERE | {"step": "pay"}, {"text": "small", "actor": "desk"}):
            body = (await rig.http.post(path, json=given, headers=headers)).json()
            key = TurnKey(body["tenant"], body["session"], body["turn"])
            result = await asyncio.wait_for(result_of(rig, key), 60)
            assert [each.code for each in result.calls] == ["ok"]
        view = (await rig.http.get(f"/v1/sessions/{body['id']}", headers=headers)).json()
        assert (view["route"], view["step"]) == ("till", "pay")
        assert [(turn["route"], turn["step"]) for turn in view["turns"]] == [("till", "pay")] * 2
        signed = (await rig.deps.client.input_of(key)).principal
        assert (signed.route, signed.step, signed.signature != "") == ("", "", True)
        shown = (await rig.http.get(f"/v1/turns/{'.'.join(key)}", headers=headers)).json()
        assert shown["requester"]["user"] == "guest"


async def result_of(rig: GatewayRig, key: TurnKey) -> TurnResult:
    while True:
        try:
            return await rig.deps.client.result(key)
        except NotFound:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "where", [{"route": "tlil"}, {"route": "till", "step": "gone"}, {"step": "pay"}, {"route": "gone", "step": "pay"}]
)
async def test_unknown_route_or_step_returns_404(till: GatewayRig, where: dict[str, str]) -> None:
    for path in ("/v1/turns", f"/v1/sessions/{fresh()}/messages"):
        answer = await till.http.post(path, json={"text": "small", "actor": "desk", **where})
        assert answer.status_code == 404
        assert "has no route and step" in answer.json()["message"]
        assert "`till/pay`" in answer.json()["message"]


async def test_session_with_an_invalid_place_fails_only_that_turn(till: GatewayRig) -> None:
    session = fresh()
    path = f"/v1/sessions/{session}"
    for found in ({"text": "hello", "actor": "desk"}, {"text": "small", "route": "gone"}, {"text": "hello"}):
        assert (await till.http.post(f"{path}/messages", json=found)).status_code == 201
    while True:
        turns = (await till.http.get(path)).json()["turns"]
        if len(turns) == 3 and turns[2]["state"] == "complete":
            break
        await asyncio.sleep(0.05)
    assert [turn["state"] for turn in turns] == ["complete", "error", "complete"]
    assert turns[1]["error"]["code"] == "config_error"
    assert "has no route and step" in turns[1]["error"]["message"]


async def test_actor_without_routes_accepts_any_route(till: GatewayRig) -> None:
    answer = await till.http.post("/v1/turns", json={"text": "hello", "actor": "plain", "route": "vip"})
    assert answer.status_code == 201
    assert (await ended(till, answer.json()["id"]))["state"] == "complete"


async def test_same_turn_id_at_another_place_is_a_conflict(till: GatewayRig) -> None:
    given = {"text": "hello", "actor": "desk", "turn": fresh()}
    assert (await till.http.post("/v1/turns", json=given)).status_code == 201
    assert (await till.http.post("/v1/turns", json={**given, "route": "till"})).status_code == 409


async def test_unavailable_transient_tool_returns_404(till: GatewayRig) -> None:
    for path in ("/v1/turns", f"/v1/sessions/{fresh()}/messages"):
        for name in ("look_down", "small"):
            answer = await till.http.post(path, json={"text": "hello", "actor": "desk", "transient": [name]})
            assert answer.status_code == 404
            assert f"actor `desk` can have no tool `{name}` for one turn" in answer.json()["message"]
    many = await till.http.post("/v1/turns", json={"text": "hello", "actor": "desk", "transient": ["refund"] * 21})
    assert many.status_code == 422
