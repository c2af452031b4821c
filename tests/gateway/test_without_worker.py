import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta

import httpx2
import pytest
from gateway_rig import BASE, SIGNER, GatewayRig, fresh, gateway_rig, react
from temporalio.client import Client
from turn_fixtures import running_turns

from signoff.contracts.ids import parse_approval_id
from signoff.engine.turn_client import TurnClient
from signoff.gateway.app import build_app
from signoff.store.store import Store
from signoff.testing.scripted_model import ScriptedModel


@pytest.fixture(scope="module")
async def nobody(gateway: GatewayRig) -> AsyncIterator[httpx2.AsyncClient]:
    away = TurnClient(gateway.turns.client, task_queue=f"nobody-{fresh()}")
    app = build_app(dataclasses.replace(gateway.deps, client=away))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=BASE, timeout=60) as http:
        yield http


async def test_turns_are_taken_while_no_worker_is_there(nobody: httpx2.AsyncClient) -> None:
    turn = fresh()
    started = await nobody.post("/v1/turns", json={"text": "pay", "actor": "desk", "turn": turn})
    assert started.status_code == 201
    answer = await nobody.post(f"/v1/approvals/main.{turn}.{turn}.c1.1/decide", json={"verdict": "approved"})
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown")
    view = await nobody.get(f"/v1/turns/{turn}")
    assert (view.status_code, view.json()["code"]) == (503, "unavailable")
    page = await nobody.get(f"/turns/{turn}")
    assert page.status_code == 503
    assert "Nothing is lost" in page.text


async def test_what_was_asked_is_shown_and_answered_while_no_worker_is_there(client: Client, store: Store) -> None:
    queue = f"stopped-{uuid.uuid4().hex[:12]}"
    async with gateway_rig(client, store, queue) as rig:
        approval = await rig.asked("pay")
        key = parse_approval_id(approval)
        assert key is not None
    # Its worker is stopped; the gateway is another one over the same store.
    away = TurnClient(client, task_queue=queue, patience=timedelta(seconds=0.5))
    app = build_app(dataclasses.replace(rig.deps, client=away))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=BASE, timeout=60) as http:
        shown = (await http.get(f"/v1/approvals/{approval}")).json()
        assert (shown["card"]["effect"], shown["state"]) == ("Pay 420 EUR to Ana", "pending")
        assert approval in (await http.get("/v1/approvals")).text
        assert "Pay 420 EUR to Ana" in (await http.get(f"/approvals/{approval}")).text
        body = {"verdict": "approved", "revision": 1, "question_hash": shown["question_hash"]}
        answer = await http.post(f"/v1/approvals/{approval}/decide", json=body)
        assert (answer.status_code, answer.json()["status"]) == (202, "pending"), answer.text
        assert (await http.get(f"/v1/approvals/{approval}")).json()["state"] == "approved"
        denied = {**body, "verdict": "denied"}
        again = await http.post(f"/v1/approvals/{approval}/decide?as=ana", json=denied)
        assert (again.status_code, again.json()["code"]) == (409, "already_decided")
    assert rig.ledger.rows == []
    model = ScriptedModel(react)
    async with running_turns(client, store, queue, rig.deps.catalog, model, verifier=SIGNER.verifier()) as back:
        result = await asyncio.wait_for(back.signoff.result(key.turn), 60)
    assert [call.code for call in result.calls] == ["ok"]
    assert len(rig.ledger.rows) == 1
