import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from call_rig import call_rig
from gateway_rig import SIGNER, GatewayRig, gateway_rig, react, turn_of
from some import some
from sqlalchemy import Connection, delete, update
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from turn_fixtures import running_turns
from turn_reset import reset_turn

from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.ids import TurnKey
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import DecisionAuthor, DecisionDraft
from signoff.engine.turn_client import TurnClient
from signoff.engine.turn_list import suspended_turns
from signoff.gateway import repair_task
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.repair_task import AnswerDispatcher, RequestSweep
from signoff.store.delivery_queue import DeliveryQueue, NewDelivery
from signoff.store.questions.answers import Answers, OwedAnswer
from signoff.store.questions.questions import Questions
from signoff.store.questions.request_lists import RequestLists
from signoff.store.store import Store
from signoff.store.tables import ANSWERS, QUESTIONS, TICKETS
from signoff.testing.scripted_model import ScriptedModel


class Away(TurnClient):
    async def wake(self, owed: OwedAnswer) -> Receipt:
        raise ServerUnavailable("the Temporal server did not answer")


class Heard(TurnClient):
    given: tuple[tuple[str, str], ...] = ()

    async def wake(self, owed: OwedAnswer) -> Receipt:
        self.given += ((owed.vote.subject, owed.vote.decision.verdict),)
        return await super().wake(owed)


class Unreadable(TurnClient):
    broken: str = ""

    async def wake(self, owed: OwedAnswer) -> Receipt:
        if owed.approval == self.broken:
            raise ValueError("no receipt")
        return await super().wake(owed)


@pytest.fixture
async def rig(client: Client, store: Store) -> AsyncIterator[GatewayRig]:
    async with gateway_rig(client, store, f"dispatch-{uuid.uuid4().hex[:12]}", dispatches=False) as found:
        yield found


async def answered(deps: GatewayDeps, approval: str, person: str) -> Receipt:
    found = deps.people.find(person, "main")
    assert found is not None
    request = (await deps.requests.load(approval)).request
    draft = DecisionDraft(
        approval_id=approval, verdict="approved", revision=request.revision, question_hash=request.question_hash
    )
    return await DecisionService(deps).decide(draft, DecisionAuthor(found, "api", "session"))


async def test_answers_missed_by_a_stopped_server_are_delivered_in_order_and_once(rig: GatewayRig) -> None:
    approval = await rig.asked("both")
    away = dataclasses.replace(rig.deps, client=Away(rig.turns.client))
    receipts = [await answered(away, approval, person) for person in ("ana", "bo")]
    assert [each.status for each in receipts] == ["counted", "accepted"]
    assert (await rig.request(approval)).state == "approved"
    view = await rig.turns.signoff.view(turn_of(approval))
    assert some(view.calls[0].approval).state == "pending"
    assert await AnswerDispatcher(away).step(older_than=0) == 2
    recorder = Heard(rig.turns.client, task_queue=rig.turns.task_queue)
    back = AnswerDispatcher(dataclasses.replace(rig.deps, client=recorder))
    assert await back.step(older_than=3_600) == 0
    assert recorder.given == ()
    assert await back.step(older_than=0) == 0
    result = await asyncio.wait_for(rig.turns.signoff.result(turn_of(approval)), 60)
    assert [call.code for call in result.calls] == ["ok"]
    assert await back.step(older_than=0) == 0
    assert recorder.given == (("ana", "approved"), ("bo", "approved"))
    assert await rig.runs(approval) == 1


async def test_turn_that_rejects_an_answer_delays_no_other(rig: GatewayRig) -> None:
    """Without the catch in `AnswerHandover._wake` the dispatcher stopped there and began with that answer
    again.
    """
    broken, other = await rig.asked("pay"), await rig.asked("pay")
    away = dataclasses.replace(rig.deps, client=Away(rig.turns.client))
    for approval in (broken, other):
        assert (await answered(away, approval, "approver")).status == "accepted"
    unreadable = Unreadable(rig.turns.client, task_queue=rig.turns.task_queue)
    unreadable.broken = broken
    assert await AnswerDispatcher(dataclasses.replace(rig.deps, client=unreadable)).step(older_than=0) == 1
    result = await asyncio.wait_for(rig.turns.signoff.result(turn_of(other)), 60)
    assert [call.code for call in result.calls] == ["ok"]
    assert [each.approval for each in await Answers(rig.deps.store).list_owed(0, 10)] == [broken]
    assert await AnswerDispatcher(rig.deps).step(older_than=0) == 0


async def test_answers_missed_by_a_stopped_worker_are_delivered_after_its_return(client: Client, store: Store) -> None:
    queue = f"stopped-{uuid.uuid4().hex[:12]}"
    async with gateway_rig(client, store, queue, dispatches=False) as rig:
        approval = await rig.asked("pay")
    away = dataclasses.replace(rig.deps, client=TurnClient(client, task_queue=queue, patience=timedelta(seconds=0.3)))
    guest = rig.deps.people.find("guest", "main")
    assert guest is not None
    receipt = await DecisionService(away).withdraw(approval, guest, "no need")
    assert receipt.status == "accepted"
    assert ((await rig.request(approval)).state, (await rig.request(approval)).reason) == ("cancelled", "no need")
    assert (await answered(away, approval, "ana")).code == "cancelled"
    assert await AnswerDispatcher(away).step(older_than=0) == 0
    model = ScriptedModel(react)
    async with running_turns(client, store, queue, rig.deps.catalog, model, verifier=SIGNER.verifier()) as back:
        working = dataclasses.replace(rig.deps, client=back.signoff)
        assert await AnswerDispatcher(working).step(older_than=0) == 0
        result = await asyncio.wait_for(back.signoff.result(turn_of(approval)), 60)
    assert [call.code for call in result.calls] == ["denied"]
    assert rig.ledger.rows == []
    assert await Answers(store).list_owed(0, 10) == []


async def test_question_of_a_terminated_turn_is_ended(rig: GatewayRig, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, waits = await rig.asked("pay"), await rig.asked("pay")
    sweep = RequestSweep(rig.deps, None)
    await rig.turns.client.get_workflow_handle(turn_of(gone).workflow_id).terminate("a drill")
    await sweep.step()
    assert (await rig.request(gone)).state == "pending"
    monkeypatch.setattr(repair_task, "SETTLED", timedelta())
    async with asyncio.timeout(30):
        while (await rig.request(gone)).state == "pending":
            await sweep.step()
    ended = await Questions(rig.deps.store).read(gone)
    assert ended is not None
    assert ended.latest.ended_as == "not_asked"
    assert (await answered(rig.deps, gone, "ana")).code == "cancelled"
    assert (await rig.request(waits)).state == "pending"
    assert await sweep.step() == 0


async def test_turns_that_wait_are_looked_up_together(rig: GatewayRig, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = [await rig.asked("pay") for _ in range(3)]
    monkeypatch.setattr(repair_task, "SETTLED", timedelta())
    keys = {turn_of(each) for each in waits}
    temporal = rig.turns.client
    async with asyncio.timeout(30):
        while await suspended_turns(temporal, keys) != keys:
            await asyncio.sleep(0.1)
    looked: list[object] = []

    async def look(*named: object) -> None:
        looked.append(named)

    monkeypatch.setattr(repair_task, "turn_row", look)
    assert await RequestSweep(rig.deps, None).step() == 0
    assert looked == []
    await temporal.get_workflow_handle(turn_of(waits[0]).workflow_id).terminate("a drill")
    async with asyncio.timeout(30):
        while not looked:
            await RequestSweep(rig.deps, None).step()
    assert len(looked) == 1


async def test_turn_that_was_reset_before_its_answer_gets_it_again(
    rig: GatewayRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair_task, "SETTLED", timedelta())
    waits, approval = await rig.asked("pay"), await rig.asked("pay")
    await rig.decide(approval, verdict="approved", revision=1)
    await rig.turns.signoff.result(turn_of(approval))
    answers = (
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
    )
    await reset_turn(rig.turns.client, turn_of(approval), answers, without_answers=True)
    async with asyncio.timeout(60):
        while True:
            await RequestSweep(rig.deps, None).step()
            if await AnswerDispatcher(rig.deps).step(older_than=0):
                continue
            if (await rig.turns.signoff.view(turn_of(approval))).result is not None:
                break
    assert await rig.runs(approval) == 1
    assert await RequestLists(rig.deps.store).find_waiting([turn_of(waits), turn_of(approval)]) == {turn_of(waits)}


async def test_cards_of_ended_requests_are_closed(rig: GatewayRig) -> None:
    cards = DeliveryQueue(rig.deps.store)
    over, again, waits = await rig.asked("pay"), await rig.asked("trip"), await rig.asked("pay")
    for approval in (over, again, waits):
        request = await rig.request(approval)
        await cards.plan([NewDelivery(request=request, person="ana", channel="chat", address="ana")])
    assert (await rig.decide(over, verdict="denied", reason="no")).json()["status"] == "accepted"
    args = (await rig.deps.requests.load(again)).args
    edited = await rig.decide(again, verdict="approved", revision=1, edited_args={**args, "cost": 7}, **{"as": "ana"})
    assert edited.status_code == 200, edited.text
    sweep = RequestSweep(rig.deps, None)
    assert await sweep.step() == 2
    rows = {approval: (await cards.of_request(approval, 1))[0] for approval in (over, again, waits)}
    assert [rows[approval].ended_at is not None for approval in (over, again, waits)] == [True, True, False]
    assert (rows[over].request.state, rows[over].request.decided_by) == ("denied", "approver")
    assert (rows[again].request.state, rows[again].request.reason) == (
        "cancelled",
        "A newer revision of this request is waiting.",
    )
    assert await sweep.step() == 0


async def test_question_of_a_used_call_is_ended_if_the_restored_store_lacks_the_answer(
    client: Client, store: Store, task_queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair_task, "SETTLED", timedelta(0))

    def forget(connection: Connection) -> None:
        connection.execute(delete(ANSWERS))
        connection.execute(delete(TICKETS))
        connection.execute(update(QUESTIONS).values(settled_at=None))

    async with call_rig(client, store, task_queue) as agent:
        used, waiting = [(await agent.propose(euro=each)).json()["id"] for each in (60, 61)]
        await agent.decide(used)
        assert (await agent.use(used)).status_code == 200
        await agent.rig.turns.suspended(TurnKey(*waiting.split(".")))
        await store.run(forget)
        states = [(await agent.rig.request(f"{each}.c1.1")).state for each in (used, waiting)]
        assert states == ["pending", "pending"]
        assert await RequestSweep(agent.rig.deps, None).step() == 1
        states = [(await agent.rig.request(f"{each}.c1.1")).state for each in (used, waiting)]
        assert states == ["cancelled", "pending"]
