import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from gateway_login import bearer, locked_rig, token_of
from gateway_rig import BASE, GatewayRig, gateway_rig
from sqlalchemy import text
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Person
from signoff.registry.catalog import Catalog
from signoff.store.store import Store
from signoff.testing.builders import a_person
from signoff.testing.scripted_model import ScriptedModel, calls, respond, results

PEOPLE = (
    Person(id="guest"),
    a_person("ana"),
    Person(id="eve", roles=("sales",)),
    Person(id="olga", roles=("auditor",)),
    Person(id="root", roles=("admin",)),
    Person(id="zoe", tenant="acme", roles=("auditor", "admin")),
)
SECRET = "correct horse battery"
_LOGIN: dict[str, Any] = {
    "type": "object",
    "properties": {"site": {"type": "string"}, "password": {"type": "string", "writeOnly": True}},
    "required": ["site", "password"],
}


def catalog_with(ledger: Ledger) -> Catalog:
    given: dict[str, Any] = {"input_schema": _LOGIN, "effect": "Log in to {site}"}
    return catalog_of(
        [
            pay_tool(ledger, name="login", **given),
            pay_tool(ledger, False, name="vault", scope="specialist", justification="only the desk does this", **given),
        ]
    )


def react(request: CompletionRequest) -> Completion:
    args = {"site": "bank.example", "password": SECRET}
    return respond("done") if results(request) else calls(("vault", args), ("login", args))


@pytest.fixture
async def rig(client: Client, store: Store) -> AsyncIterator[GatewayRig]:
    queue = f"events-{uuid.uuid4().hex[:12]}"
    model = ScriptedModel(react)
    async with gateway_rig(client, store, queue, catalog_of_ledger=catalog_with, model=model) as found:
        yield found


async def finished(rig: GatewayRig) -> TurnKey:
    approval = await rig.asked("go")
    await rig.decide(approval, verdict="approved", **{"as": "approver"})
    key = TurnKey(*approval.split(".")[:3])
    await rig.turns.signoff.result(key)
    return key


async def read(rig: GatewayRig, **params: Any) -> dict[str, Any]:
    answer = await rig.http.get("/v1/events", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_events_show_a_turn_in_order_without_its_secrets(rig: GatewayRig) -> None:
    key = await finished(rig)
    name = ".".join(key)
    found = await read(rig, turn=name)
    entries = [
        (each["type"], each["data"].get("tool")) for each in found["events"] if each["type"] != "catalog.deployed"
    ]
    shown = [kind for kind, tool in entries if tool in ("login", None)]
    assert shown.index("turn.started") < shown.index("tool_call.proposed") < shown.index("approval.requested")
    assert shown.index("approval.requested") < shown.index("approval.decided") < shown.index("tool_call:login")
    assert shown.index("tool_call:login") < shown.index("tool_call.executed")
    assert ("tool_call:vault", "vault") in entries
    dispatched = next(each for each in found["events"] if each["type"] == "tool_call:login")
    assert (dispatched["source"], dispatched["specversion"]) == ("actor:desk", "1.0")
    assert [each["number"] for each in found["events"]] == sorted({each["number"] for each in found["events"]})
    # The arguments are shown without the secret, and no other event has it.
    given = [each for each in found["events"] if each["type"].startswith("tool_call:")]
    assert {each["data"]["tool"]: each["private"] for each in given} == {"login": False, "vault": True}
    assert [each["data"]["arguments"]["site"] for each in given] == ["bank.example"] * 2
    assert {each["actor"] for each in found["events"] if each["data"].get("call")} == {"desk"}
    everything = await rig.http.get("/v1/events", params={"limit": 500})
    assert "bank.example" in everything.text
    assert SECRET not in everything.text
    schemas = (await rig.http.get("/v1/events/schemas")).json()
    for each in found["events"]:
        assert each["dataschema"] in schemas.values()
        schema = (await rig.http.get(each["dataschema"].removeprefix(BASE))).json()
        assert set(each["data"]) <= set(schema["properties"])
    for missing in ("nothing/1", "turn.started/2"):
        assert (await rig.http.get(f"/v1/events/schemas/{missing}")).status_code == 404


async def test_read_without_new_events_waits_for_the_next(rig: GatewayRig) -> None:
    before = await read(rig)
    assert await read(rig, after=before["next"]) == {**before, "events": [], "next": before["newest"]}
    waiting = asyncio.create_task(read(rig, after=before["next"], wait=30))
    await asyncio.sleep(0)
    await rig.http.post("/v1/freezes?as=approver", json={"reason": "drill"})
    found = await waiting
    assert [each["type"] for each in found["events"]] == ["freeze.started"]
    assert found["events"][0]["data"] == {"person": "approver", "reason": "drill", "channel": "api"}
    assert found["next"] == before["newest"] + 1
    await rig.http.request("DELETE", "/v1/freezes/main?as=approver", json={})
    # A new store has given out fewer numbers than the reader remembers.
    assert (await read(rig, after=10_000, wait=30))["next"] == before["newest"] + 2


async def test_event_stream_resumes_after_the_last_event_id(rig: GatewayRig) -> None:
    await finished(rig)
    found = (await read(rig))["events"]
    # A gateway that stops ends its streams after the events so far.
    rig.app.state.live.close()

    async def followed(**headers: str) -> httpx2.Response:
        sent = {"accept": "text/event-stream", **{name.replace("_", "-"): value for name, value in headers.items()}}
        return await rig.http.get("/v1/events?after=1", headers=sent)

    for answer, first in ((await followed(), 1), (await followed(last_event_id="3"), 3)):
        assert answer.headers["content-type"].startswith("text/event-stream")
        blocks = [dict(line.split(": ", 1) for line in block.splitlines()) for block in answer.text.split("\n\n")[1:-1]]
        assert [block["id"] for block in blocks] == [str(each["number"]) for each in found[first:]]
        assert [json.loads(block["data"]) for block in blocks] == found[first:]
    assert (await followed(last_event_id="x")).status_code == 422


async def test_removed_events_return_410_with_the_last_removed_number(rig: GatewayRig) -> None:
    await finished(rig)
    newest = (await read(rig))["newest"]
    change = text("UPDATE events SET numbered_at = 0 WHERE number <= 3")
    await rig.deps.store.run(lambda connection: connection.execute(change))
    assert await rig.deps.events.remove_old(30) == 3
    assert (await read(rig))["events"][0]["number"] == (await read(rig, after=3))["events"][0]["number"] == 4
    for headers in ({}, {"accept": "text/event-stream"}):
        gone = await rig.http.get("/v1/events?after=2", headers=headers)
        assert (gone.status_code, gone.json()["code"]) == (410, "gone")
        assert "up to 3" in gone.json()["message"]
    assert newest > 4


@pytest.mark.usefixtures("nothing_waits")
async def test_events_are_readable_by_auditors_operators_and_readers_of_their_turn(rig: GatewayRig) -> None:
    name = ".".join(await finished(rig))
    locked = locked_rig(rig, people=PEOPLE)
    found: dict[str, Any] = {}
    for person in PEOPLE:
        headers = bearer(await token_of(locked, person.id, "read", tenant=person.tenant))
        all_of_it = await locked.http.get("/v1/events", headers=headers)
        turn = await locked.http.get("/v1/events", params={"turn": name}, headers=headers)
        tools = {each["data"].get("tool", "-") for each in turn.json().get("events", ())} - {"-"}
        found[person.id] = (all_of_it.status_code, turn.status_code, sorted(tools))
        if person.tenant == "acme":
            assert all_of_it.json()["events"] == []
            assert (await locked.http.get("/v1/events?tenant=main", headers=headers)).status_code == 404
    assert found == {
        "guest": (403, 200, ["login"]),
        "ana": (403, 200, ["login"]),
        "eve": (403, 404, []),
        "olga": (200, 200, ["login", "vault"]),
        "root": (200, 200, ["login", "vault"]),
        "zoe": (200, 404, []),
    }
    assert (await locked.http.get("/v1/events")).status_code == 401
