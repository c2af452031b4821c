"""Waits for external calls end on changes of the store, and ask Temporal nothing before."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from call_rig import CallRig, call_rig
from polling import pauses
from temporalio.client import Client
from turn_fixtures import PATIENCE

from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import TurnKey
from signoff.engine.turn_client import TurnClient
from signoff.gateway.deps import CALLS_KEPT
from signoff.gateway.turn_watch import TurnWatch
from signoff.store.store import Store
from signoff.testing.rig import MovableClock

LONG = 50
"""The longest wait of a call, in seconds."""


class CountedClient(TurnClient):
    def __init__(self, client: Client, **more: Any) -> None:
        super().__init__(client, **more)
        self.asked = 0

    def handle(self, *given: Any, **more: Any) -> Any:
        self.asked += 1
        return super().handle(*given, **more)


@contextlib.asynccontextmanager
async def counted(agent: CallRig, **changes: Any) -> AsyncIterator[tuple[CallRig, CountedClient]]:
    """Another gateway with a client that counts."""
    deps = agent.rig.deps
    client = CountedClient(deps.client.temporal, task_queue=deps.client.task_queue, patience=PATIENCE)
    yield CallRig(agent.rig.beside(client=client, **changes)), client


async def asked_call(agent: CallRig) -> str:
    call: str = (await agent.propose(euro=200)).json()["id"]
    for pause in pauses():
        if (await agent.show(call)).get("code"):
            return call
        await asyncio.sleep(pause)
    raise AssertionError("pauses never end")


async def is_followed(agent: CallRig, number: int = 1) -> None:
    watch = agent.rig.deps.turn_watch
    for pause in pauses():
        if sum(map(len, watch._followers.values())) >= number and not watch._unread:
            return
        await asyncio.sleep(pause)


async def test_waits_for_approvers_send_temporal_no_request(agent: CallRig) -> None:
    call = await asked_call(agent)
    async with counted(agent) as (gateway, client):
        await gateway.show(call, wait=0.5)
        before = client.asked
        waits = await asyncio.gather(*(gateway.show(call, wait=2) for _ in range(5)))
        assert {each["state"] for each in waits} == {"waiting"}
        assert client.asked == before


async def test_first_wait_at_a_gateway_reads_only_the_start_of_its_turn(agent: CallRig) -> None:
    call = await asked_call(agent)
    async with counted(agent) as (gateway, client):
        assert (await gateway.show(call, wait=0.5))["state"] == "waiting"
        assert client.asked == 1


async def test_waits_for_longer_than_calls_are_kept_send_temporal_no_request(agent: CallRig) -> None:
    call = await asked_call(agent)
    time = MovableClock()
    async with counted(agent, clock=time.now) as (gateway, client):
        await gateway.show(call, wait=0.1)
        before = client.asked
        for _ in range(3):
            time.ahead += CALLS_KEPT * 2 / 3
            assert (await gateway.show(call, wait=0.1))["state"] == "waiting"
        assert client.asked == before


@pytest.mark.parametrize(("verdict", "state"), [("approved", "permitted"), ("denied", "denied")])
async def test_decision_of_another_gateway_ends_the_wait(agent: CallRig, verdict: str, state: str) -> None:
    call = await asked_call(agent)
    async with counted(agent) as (gateway, _):
        waiting = asyncio.create_task(gateway.show(call, wait=LONG))
        await is_followed(gateway)
        await agent.decide(call, verdict=verdict, reason="no" if verdict == "denied" else "")
        assert (await waiting)["state"] == state


async def test_withdrawal_ends_the_wait(agent: CallRig) -> None:
    call = await asked_call(agent)
    waiting = asyncio.create_task(agent.show(call, wait=LONG))
    await is_followed(agent)
    await agent.withdraw(call)
    assert (await waiting)["state"] == "denied"


async def test_deadline_ends_the_wait_without_a_change_of_rows(agent: CallRig) -> None:
    key = uuid.uuid4().hex
    call = (await agent.propose(euro=200, key=key, tool="brief")).json()["id"]
    assert (await agent.show(call, wait=LONG))["state"] == "denied"


async def test_answer_after_the_first_look_is_not_missed(agent: CallRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision commits after the wait has read its call and before it follows the turn."""
    call = await asked_call(agent)
    await agent.show(call, wait=0.1)
    read, decided = TurnWatch.read, False

    async def read_then_decide(watch: TurnWatch, turns: Any) -> Any:
        nonlocal decided
        stamps = await read(watch, turns)
        if not decided:
            decided = True
            await agent.decide(call)
        return stamps

    monkeypatch.setattr(TurnWatch, "read", read_then_decide)
    assert (await agent.show(call, wait=LONG))["state"] == "permitted"


async def test_wait_continues_after_an_outage_of_the_store(agent: CallRig, monkeypatch: pytest.MonkeyPatch) -> None:
    call = await asked_call(agent)
    waiting = asyncio.create_task(agent.show(call, wait=LONG))
    await is_followed(agent)
    mark, failures = Store.change_mark, 0

    async def away(store: Store) -> Any:
        nonlocal failures
        failures += 1
        if failures == 1:
            raise StoreUnavailable("away")
        return await mark(store)

    monkeypatch.setattr(Store, "change_mark", away)
    await agent.decide(call)
    assert (await waiting)["state"] == "permitted"
    assert failures > 1


async def test_lost_notices_delay_the_wait_only(agent: CallRig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def deaf(store: Store) -> int:
        return 0

    monkeypatch.setattr(Store, "change_mark", deaf)
    call = await asked_call(agent)
    waiting = asyncio.create_task(agent.show(call, wait=LONG))
    await is_followed(agent)
    await agent.decide(call)
    assert (await waiting)["state"] == "permitted"


async def test_stop_of_the_gateway_ends_the_wait(client: Client, store: Store, task_queue: str) -> None:
    async with call_rig(client, store, task_queue) as agent:
        call = await asked_call(agent)
        waiting = asyncio.create_task(agent.show(call, wait=LONG))
        await is_followed(agent)
        agent.rig.app.state.live.close()
        assert (await waiting)["state"] == "waiting"


async def test_followed_turns_are_forgotten_after_their_waits(agent: CallRig) -> None:
    call = await asked_call(agent)
    await agent.show(call, wait=0.2)
    watch = agent.rig.deps.turn_watch
    assert watch._followers == {}


async def test_cached_answer_is_not_given_for_a_changed_call(agent: CallRig) -> None:
    call = await asked_call(agent)
    assert (await agent.show(call, wait=0.1))["state"] == "waiting"
    await agent.decide(call, edited_args={"order": "A7", "euro": 150})
    for pause in pauses():
        found = await agent.show(call, wait=0.1)
        if found["state"] != "waiting":
            break
        await asyncio.sleep(pause)
    assert (found["state"], found["args"]["euro"]) == ("permitted", 150)


async def test_reset_to_before_the_question_does_not_end_the_wait(agent: CallRig) -> None:
    call = await asked_call(agent)
    waiting = asyncio.create_task(agent.show(call, wait=LONG))
    await is_followed(agent)
    await agent.rig.turns.reset(TurnKey(*call.split(".")))
    # The turn may ask a further revision after the reset.
    for pause in pauses():
        await agent.decide(call)
        if (await asyncio.wait({waiting}, timeout=pause))[0]:
            break
    assert waiting.result()["state"] == "permitted"
