import asyncio
import base64
import dataclasses
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from call_rig import CallRig, with_callbacks
from gateway_rig import http_of
from temporalio.client import Client
from webhook_receiver import KEY, Receiver, running_receiver

from signoff.audit.events import EVENT_TYPES
from signoff.gateway.app import build_app
from signoff.gateway.events.event_sender import RETRY_SECONDS, SETTLING, EventSender, subscriptions_of
from signoff.registry.actor import Callbacks
from signoff.store.tables import EVENT_DELIVERIES


@dataclass
class CallbackRig:
    agent: CallRig
    sender: EventSender
    receiver: Receiver

    def callback(self, path: str = "hooks/run-7", state: str = "resume-7") -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{self.receiver.port}/{path}", "state": state}

    async def told(self, number: int = 1) -> list[dict[str, Any]]:
        while len(self.receiver.requests) < number:
            await self.sender.step()
            await asyncio.sleep(0.05)
        return self.receiver.events

    async def send_all(self) -> None:
        columns = EVENT_DELIVERIES.c
        own = EVENT_DELIVERIES.select().where(columns.subscription == "coder.callbacks", columns.state == "new")
        await self.sender.step()
        while await self.agent.rig.deps.store.run(lambda connection: connection.execute(own).all()):
            await asyncio.sleep(0.05)
            await self.sender.step()

    async def make_due(self, attempts: int) -> None:
        values = {"due_at": 0, "attempts": attempts}
        change = EVENT_DELIVERIES.update().values(values).where(EVENT_DELIVERIES.c.state == "new")
        await self.agent.rig.deps.store.run(lambda connection: connection.execute(change).rowcount)


@pytest.fixture
async def hooks(agent: CallRig, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CallbackRig]:
    """It has already seen older events."""
    monkeypatch.setenv("CALLBACK_SECRET", "whsec_" + base64.b64encode(KEY).decode())
    async with running_receiver() as receiver:
        callbacks = Callbacks(
            urls=(f"http://127.0.0.1:{receiver.port}/hooks/",),
            secret="env:CALLBACK_SECRET",
            allow_networks=("127.0.0.0/8",),
            workflows=("order-*",),
        )
        deps = with_callbacks(agent.rig.deps, callbacks)
        app = build_app(deps)
        http = http_of(app)
        [own] = [each for each in subscriptions_of(deps) if (each.name, each.tenant) == ("coder.callbacks", "main")]
        sender = EventSender(deps, own)
        await sender.step()
        # Deliveries of other tests belong to receivers that no longer exist.
        left = EVENT_DELIVERIES.delete().where(EVENT_DELIVERIES.c.subscription == own.name)
        await deps.store.run(lambda connection: connection.execute(left).rowcount)
        async with http:
            yield CallbackRig(CallRig(dataclasses.replace(agent.rig, http=http, app=app, deps=deps)), sender, receiver)


def test_callback_events_are_known_event_types() -> None:
    assert set(SETTLING) <= set(EVENT_TYPES)


async def test_callback_reports_the_permit_and_not_the_agents_own_report(hooks: CallbackRig) -> None:
    agent = hooks.agent
    call = (await agent.propose(euro=200, callback=hooks.callback())).json()["id"]
    await hooks.send_all()
    assert hooks.receiver.requests == []
    await agent.decide(call)
    [told] = await hooks.told()
    assert told == {"id": call, "state": "permitted", "tool": "refund", "callback": {"state": "resume-7"}}
    assert hooks.receiver.requests[0][0]["webhook-id"] == f"{call}.permitted"
    assert (await agent.use(call)).status_code == 200
    await agent.report(call)
    await hooks.send_all()
    assert len(hooks.receiver.requests) == 1


async def test_callback_reports_a_permit_with_edited_arguments(hooks: CallbackRig) -> None:
    call = (await hooks.agent.propose(euro=200, callback=hooks.callback())).json()["id"]
    await hooks.agent.decide(call, edited_args={"order": "A7", "euro": 150})
    [told] = await hooks.told()
    assert (told["id"], told["state"]) == (call, "permitted")


async def test_callback_reports_a_denial_and_a_run_by_signoff(hooks: CallbackRig) -> None:
    agent = hooks.agent
    denied = (await agent.propose(euro=200, callback=hooks.callback(state="no"))).json()["id"]
    silent = (await agent.propose(euro=200)).json()["id"]
    ran = (await agent.propose(tool="pay", args={"amount": 200}, callback=hooks.callback(state="yes"))).json()["id"]
    await agent.decide(silent)
    await agent.decide(denied, verdict="denied", reason="not twice")
    await agent.decide(ran)
    await hooks.told(2)
    await hooks.send_all()
    told = {each["id"]: (each["state"], each["callback"]["state"]) for each in hooks.receiver.events}
    assert told == {denied: ("denied", "no"), ran: ("ended", "yes")}


async def test_failed_callback_is_retried_under_the_same_id(hooks: CallbackRig) -> None:
    agent = hooks.agent
    hooks.receiver.answers = [503, 503]
    call = (await agent.propose(euro=200, callback=hooks.callback())).json()["id"]
    await agent.decide(call, verdict="denied", reason="no")
    await hooks.told(1)
    # The last attempt fails as well.
    await hooks.make_due(attempts=len(RETRY_SECONDS))
    await hooks.told(2)
    failed = (await agent.http.get("/v1/events/failed")).json()["failed"]
    assert "coder.callbacks" in {each["subscription"] for each in failed}
    params = {"as": "approver", "subscription": "coder.callbacks"}
    retried = await agent.http.post("/v1/events/failed/retry", params=params, json={})
    assert retried.json()["retried"] >= 1, retried.text
    await hooks.told(3)
    assert {headers["webhook-id"] for headers, _ in hooks.receiver.requests} == {f"{call}.denied"}


async def test_callback_signals_a_workflow(hooks: CallbackRig, client: Client) -> None:
    name = f"order-{uuid.uuid4().hex}"
    handle = await client.start_workflow("Waits", id=name, task_queue=f"nobody-{name}")
    callback = {"workflow": {"id": name, "signal": "signoff.call"}, "state": "step-3"}
    call = (await hooks.agent.propose(euro=200, callback=callback)).json()["id"]
    await hooks.agent.decide(call)
    signals: list[Any] = []
    while not signals:
        await hooks.sender.step()
        events = (await handle.fetch_history()).events
        signals = [each.workflow_execution_signaled_event_attributes for each in events if each.event_type == 26]
        await asyncio.sleep(0.05)
    [told] = [json.loads(each.data) for each in signals[0].input.payloads]
    assert signals[0].signal_name == "signoff.call"
    assert told == {"id": call, "state": "permitted", "tool": "refund", "callback": {"state": "step-3"}}
    await handle.terminate()


@pytest.mark.row("C13")
async def test_callback_outside_the_declaration_is_refused(hooks: CallbackRig, agent: CallRig) -> None:
    for callback in (
        {"url": "https://evil.example.com/hooks/x"},
        hooks.callback("other/run-7"),
        hooks.callback("hooks/../admin"),
        {"workflow": {"id": "turn/main/s/t", "signal": "signoff.call"}},
        {"workflow": {"id": "order-7", "signal": "cancel"}},
    ):
        answer = await hooks.agent.propose(callback=callback)
        assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed"), callback
    assert (await agent.propose(callback=hooks.callback())).status_code == 403
    both = hooks.callback() | {"workflow": {"id": "order-7", "signal": "signoff.call"}}
    assert (await hooks.agent.propose(callback=both)).status_code == 422


async def test_proposal_with_another_callback_does_not_join_a_call(hooks: CallbackRig) -> None:
    session = uuid.uuid4().hex
    first = await hooks.agent.join(euro=200, session=session, callback=hooks.callback())
    again = await hooks.agent.join(euro=200, session=session, callback=hooks.callback())
    other = await hooks.agent.join(euro=200, session=session, callback=hooks.callback("hooks/run-8"))
    assert first.json()["id"] == again.json()["id"]
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
