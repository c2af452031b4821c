import asyncio
import uuid
from datetime import timedelta

from gateway_rig import SIGNER, GatewayRig, fresh, gateway_rig, react, turn_of
from temporalio.client import Client
from turn_fixtures import running_turns

from signoff.engine.turn_client import TurnClient
from signoff.store.store import Store
from signoff.testing.scripted_model import ScriptedModel


async def test_turn_starts_are_accepted_without_a_worker(gateway: GatewayRig) -> None:
    away = TurnClient(gateway.turns.client, task_queue=f"nobody-{fresh()}", patience=timedelta(seconds=1))
    nobody, turn = gateway.beside(client=away).http, fresh()
    started = await nobody.post("/v1/turns", json={"text": "pay", "actor": "desk", "turn": turn})
    assert started.status_code == 201
    answer = await nobody.post(f"/v1/approvals/main.{turn}.{turn}.c1.1/decide", json={"verdict": "approved"})
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown")
    view = await nobody.get(f"/v1/turns/{turn}")
    assert (view.status_code, view.json()["code"]) == (503, "unavailable")
    page = await nobody.get(f"/turns/{turn}")
    assert page.status_code == 503
    assert "decisions are safe" in page.text


async def test_request_is_shown_and_answered_without_a_worker(client: Client, store: Store) -> None:
    queue = f"stopped-{uuid.uuid4().hex[:12]}"
    async with gateway_rig(client, store, queue) as rig:
        approval = await rig.asked("pay")
    # Its worker is stopped. The gateway is another one over the same store.
    away = TurnClient(client, task_queue=queue, patience=timedelta(seconds=0.5))
    async with rig.beside(client=away).http as http:
        shown = (await http.get(f"/v1/approvals/{approval}")).json()
        assert (shown["card"]["effect"], shown["state"]) == ("Pay 420 EUR to Ana", "pending")
        assert approval in (await http.get("/v1/approvals")).text
        assert "Pay 420 EUR to Ana" in (await http.get(f"/approvals/{approval}")).text
        body = {"verdict": "approved", "revision": 1, "question_hash": shown["question_hash"]}
        answer = await http.post(f"/v1/approvals/{approval}/decide", json=body)
        assert (answer.status_code, answer.json()["status"]) == (200, "accepted"), answer.text
        assert (await http.get(f"/v1/approvals/{approval}")).json()["state"] == "approved"
        denied = {**body, "verdict": "denied"}
        again = await http.post(f"/v1/approvals/{approval}/decide?as=ana", json=denied)
        assert (again.status_code, again.json()["code"]) == (409, "already_decided")
    assert rig.ledger.rows == []
    model = ScriptedModel(react)
    async with running_turns(client, store, queue, rig.deps.catalog, model, verifier=SIGNER.verifier()) as back:
        result = await asyncio.wait_for(back.signoff.result(turn_of(approval)), 60)
    assert [call.code for call in result.calls] == ["ok"]
    assert len(rig.ledger.rows) == 1
