import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from gateway_rig import GatewayRig, gateway_rig
from sqlalchemy import update
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.audit.event_sources import EventSources
from signoff.audit.log import AuditLog
from signoff.audit.timeline import timeline
from signoff.contracts.audit import CloudEvent
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.gateway.events import event_task
from signoff.gateway.events.event_task import (
    DEADLINES,
    LONG_END_OVERLAP,
    DeadlineRecorder,
    TurnEndRecorder,
    record_progress,
)
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.catalog import Catalog
from signoff.store.store import Store
from signoff.store.tables import QUESTIONS
from signoff.testing.scripted_model import ScriptedModel, calls, respond, results

GRACE_SECONDS = 0.5
PAY = {"amount": 1, "to": "Ana"}
HURRIED = ApprovalPolicy(
    timeout=0.9, remind_after=0.2, escalate_after=0.4, escalate_to=("role:finance",), on_timeout="escalate"
)


def hurried_catalog(ledger: Ledger) -> Catalog:
    return catalog_of(
        [pay_tool(ledger, HURRIED, name="hurried"), pay_tool(ledger), pay_tool(ledger, False, name="free")]
    )


def react(request: CompletionRequest) -> Completion:
    if results(request):
        return respond("done")
    words = request.messages[-1].parts[0]
    names = ("free",) if "free" in str(words) else ("hurried", "pay")
    return calls(*((name, PAY) for name in names))


@pytest.fixture
async def rig(client: Client, store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GatewayRig]:
    """The audit log begins with the test. The gateway records nothing automatically."""
    monkeypatch.setattr(event_task, "GRACE", timedelta(seconds=GRACE_SECONDS))
    queue = f"recorders-{uuid.uuid4().hex[:12]}"
    async with gateway_rig(
        client, store, queue, catalog_of_ledger=hurried_catalog, model=ScriptedModel(react)
    ) as found:
        yield found


async def events_of(rig: GatewayRig, key: TurnKey, *wanted: str) -> Sequence[CloudEvent]:
    await rig.deps.events.extend()
    found = await rig.deps.events.read(key.tenant, 0, limit=500, stream=key.workflow_id, with_private=True)
    return [each for each in found.events if not wanted or each.type in wanted]


async def until(step: Callable[[], Awaitable[Any]]) -> None:
    while not await step():
        await asyncio.sleep(0.1)


async def test_deadlines_are_recorded_while_the_turn_waits_for_others(rig: GatewayRig) -> None:
    """The turn writes nothing before an answer. Without the recorder no deadline was written."""
    key = await rig.turns.start()
    await rig.turns.waiting(key)
    timed = ("approval.reminded", "approval.escalated", "approval.postponed", "approval.expired")
    async with record_progress(rig.deps, every=0.1), record_progress(rig.deps, every=0.1):
        while len(await events_of(rig, key, *timed)) < len(timed):
            await asyncio.sleep(0.1)
    found = await events_of(rig, key, *timed)
    assert [(each.type, each.claimed, each.actor) for each in found] == [(name, False, "desk") for name in timed]
    assert (await rig.turns.signoff.view(key)).result is None
    # The turn reports the same when it continues, and it is not recorded twice.
    await rig.turns.signoff.cancel_turn(key)
    await rig.turns.signoff.result(key)
    assert [each.type for each in await events_of(rig, key, *timed)] == list(timed)
    words = [each.what for each in timeline(await AuditLog(rig.deps.store).stream(key.workflow_id))]
    assert len(words) == len(set(words))


@pytest.mark.parametrize("ahead", [False, True])
async def test_deadlines_without_a_running_gateway_are_recorded_later(rig: GatewayRig, ahead: bool) -> None:
    await DeadlineRecorder(rig.deps).step()
    if ahead:
        wrong = rig.deps.clock() + timedelta(days=1)
        await EventSources(rig.deps.store).advance(DEADLINES, wrong)
    key = await rig.turns.start()
    await rig.turns.waiting(key)
    # By its name: on a busy machine it may no longer wait.
    approval = ApprovalKey(key, "c1.1").id
    while (await rig.deps.requests.load(approval)).request.state == "pending":
        await asyncio.sleep(0.1)
    await asyncio.sleep(GRACE_SECONDS)
    assert await DeadlineRecorder(rig.deps).step() == 4
    assert await DeadlineRecorder(rig.deps).step() == 0


async def test_unreadable_request_does_not_stop_the_records(rig: GatewayRig) -> None:
    recorder = DeadlineRecorder(rig.deps)
    await recorder.step()
    await rig.turns.waiting(await rig.turns.start())
    change = update(QUESTIONS).values(body="x")
    await rig.deps.store.run(lambda connection: connection.execute(change).close())
    assert await recorder.step() == 0


async def test_timely_answer_leaves_no_expiry_record(rig: GatewayRig) -> None:
    status = ""
    # If a busy machine answers too late, another request follows.
    while status != "accepted":
        key = await rig.turns.start()
        await rig.turns.waiting(key)
        approval = ApprovalKey(key, "c1.1").id
        status = (await rig.decide(approval, verdict="denied", **{"as": "approver"})).json()["status"]
    await asyncio.sleep(2 * HURRIED.timeout + GRACE_SECONDS)
    await DeadlineRecorder(rig.deps).step()
    result = {each.type: each.time for each in await events_of(rig, key) if each.subject == approval}
    timed = [result[each] for each in ("approval.escalated", "approval.postponed") if each in result]
    assert all(moment < result["approval.decided"] for moment in timed)
    assert "approval.expired" not in result


async def test_normal_end_of_a_turn_is_recorded_once(rig: GatewayRig) -> None:
    key = await rig.turns.start(text="free")
    await rig.turns.signoff.result(key)
    await until(TurnEndRecorder(rig.deps).step)
    assert await TurnEndRecorder(rig.deps).step() == 0
    last = (await events_of(rig, key))[-1]
    assert (last.type, last.data, last.claimed) == ("turn.ended", {"ended": "complete"}, False)
    assert [each.type for each in await events_of(rig, key)] == [
        "turn.started",
        "tool_call.proposed",
        "tool_call.allowed",
        "tool_call:free",
        "tool_call.executed",
        "turn.ended",
    ]


async def test_end_reported_by_the_turn_is_not_recorded_again(rig: GatewayRig) -> None:
    stopped, gone, ordinary = [await rig.turns.start() for _ in range(3)]
    for key in (stopped, gone, ordinary):
        await rig.turns.waiting(key)
    await rig.turns.signoff.cancel_turn(stopped)
    await rig.turns.signoff.result(stopped)
    await rig.deps.client.temporal.get_workflow_handle(gone.workflow_id).terminate()
    recorder = TurnEndRecorder(rig.deps)
    await until(recorder.step)
    assert [(each.data["ended"], each.claimed) for each in await events_of(rig, stopped, "turn.ended")] == [
        ("cancelled", True)
    ]
    assert [(each.data["ended"], each.claimed) for each in await events_of(rig, gone, "turn.ended")] == [
        ("terminated", False)
    ]
    assert await events_of(rig, ordinary, "turn.ended") == []


async def test_reset_of_a_turn_is_not_recorded_as_its_end(rig: GatewayRig) -> None:
    key = await rig.turns.start()
    await rig.turns.waiting(key)
    temporal = rig.deps.client.temporal
    handle = temporal.get_workflow_handle(key.workflow_id)
    history = await handle.fetch_history()
    first = next(each.event_id for each in history.events if each.HasField("workflow_task_completed_event_attributes"))
    await temporal.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=temporal.namespace,
            workflow_execution=WorkflowExecution(workflow_id=key.workflow_id),
            reason="test",
            workflow_task_finish_event_id=first,
            request_id=uuid.uuid4().hex,
        )
    )
    other = await rig.turns.start(text="free")
    await rig.turns.signoff.result(other)
    recorder = TurnEndRecorder(rig.deps)
    await until(recorder.step)
    assert await events_of(rig, key, "turn.ended") == []
    await handle.terminate()
    await until(recorder.step)
    assert [each.data["ended"] for each in await events_of(rig, key, "turn.ended")] == ["terminated"]


async def test_end_with_a_clock_ahead_hides_no_later_end(rig: GatewayRig) -> None:
    """The recorder missed later ends when it followed the newest end without a limit."""
    ahead = await rig.turns.start()
    await rig.turns.waiting(ahead)
    await rig.turns.forward(ahead, days=60)
    await rig.turns.signoff.result(ahead)
    recorder = TurnEndRecorder(rig.deps)
    await until(recorder.step)
    ended = datetime.fromisoformat((await events_of(rig, ahead, "turn.ended"))[0].time)
    assert ended > rig.deps.clock() + timedelta(hours=1)
    key = await rig.turns.start(text="free")
    await rig.turns.signoff.result(key)
    await until(recorder.step)
    assert len(await events_of(rig, key, "turn.ended")) == 1
    # The same after a restart.
    other = await rig.turns.start(text="free")
    await rig.turns.signoff.result(other)
    await until(TurnEndRecorder(rig.deps).step)
    assert len(await events_of(rig, other, "turn.ended")) == 1


async def test_withdrawal_is_recorded_once_and_with_its_person(rig: GatewayRig) -> None:
    key = await rig.turns.start()
    await rig.turns.waiting(key)
    pay = next(each for each in (await rig.turns.signoff.pending(key)) if each.tool == "pay")
    answer = await rig.http.post(f"/v1/approvals/{pay.id}/withdraw?as=approver", json={"reason": "no need"})
    assert answer.json()["status"] == "accepted", answer.text
    result = await events_of(rig, key, "approval.withdrawn")
    assert [(each.claimed, each.subject, each.data["person"]) for each in result] == [(False, pay.id, "approver")]
    await rig.turns.signoff.cancel_turn(key)
    await rig.turns.signoff.result(key)
    result = await events_of(rig, key, "approval.withdrawn")
    assert [each.subject for each in result].count(pay.id) == 1
    assert len(result) == 2


async def test_recorded_position_never_moves_back(store: Store) -> None:
    sources = EventSources(store)
    begun = datetime.fromisoformat("2026-03-01T09:30:00+00:00")
    later = begun + LONG_END_OVERLAP
    assert await sources.read("ends", begun) == begun
    await sources.advance("ends", later)
    await sources.advance("ends", begun)
    assert await sources.read("ends", begun) == later
