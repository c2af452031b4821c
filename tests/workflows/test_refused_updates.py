import asyncio
from datetime import timedelta
from typing import Any

import pytest
from raw_turns import RawTurnClient
from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollWorkflowTaskQueueRequest, RespondWorkflowTaskCompletedRequest
from temporalio.client import Client, Interceptor, OutboundInterceptor, StartWorkflowUpdateInput
from temporalio.service import RPCError, RPCStatusCode
from turn_fixtures import PATIENCE, Ledger, TurnRig, catalog_of, pay_tool, yes

from signoff.contracts import names
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.ids import TurnKey
from signoff.testing.scripted_model import calls, respond


class _Full(Interceptor):
    """A connection on which the server answers every update and every description with `status`."""

    def __init__(self, status: RPCStatusCode) -> None:
        self.status = status

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _Refusing(next, self.status)


class _Refusing(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, status: RPCStatusCode) -> None:
        super().__init__(next)
        self._status = status

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> Any:
        raise RPCError("no more updates", self._status, b"")

    async def describe_workflow(self, input: Any) -> Any:
        raise RPCError("no answer", self._status, b"")


def _over(client: Client, status: RPCStatusCode) -> RawTurnClient:
    config = client.config()
    config["interceptors"] = [_Full(status)]
    return RawTurnClient(Client(**config))


@pytest.mark.parametrize("status", [RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.FAILED_PRECONDITION])
async def test_answer_goes_as_a_signal_when_updates_are_refused(turn_rig: TurnRig, status: RPCStatusCode) -> None:
    ledger = Ledger()
    script = [calls(("pay", {"amount": 1})), respond("done")]
    async with turn_rig.running([pay_tool(ledger)], script) as turns:
        key = await turns.start_waiting()
        receipt = await _over(turn_rig.client, status).decide(yes(key))
        result = await turns.signoff.result(key)
    assert (receipt.status, receipt.verdict) == ("pending", "approved")
    assert [(call.code, call.decided_by) for call in result.calls] == [("ok", "approver")]
    assert len(ledger.rows) == 1


class _Once(Interceptor):
    """A connection on which the server fails each update's workflow task at the first attempt."""

    def __init__(self) -> None:
        self.failed: set[str] = set()

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _FailingOnce(next, self.failed)


class _FailingOnce(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, failed: set[str]) -> None:
        super().__init__(next)
        self._failed = failed

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> Any:
        if input.update in self._failed:
            return await super().start_workflow_update(input)
        self._failed.add(input.update)
        raise RPCError("unexpected workflow task failure", RPCStatusCode.FAILED_PRECONDITION, b"")


async def test_answer_is_sent_again_after_its_task_failed(turn_rig: TurnRig, ledger: Ledger) -> None:
    once, config = _Once(), turn_rig.client.config()
    config["interceptors"] = [once]
    script = [calls(("pay", {"amount": 1})), respond("done")]
    async with turn_rig.running([pay_tool(ledger)], script) as turns:
        key = await turns.start_waiting()
        receipt = await RawTurnClient(Client(**config), task_queue=turn_rig.task_queue, patience=PATIENCE).decide(
            yes(key)
        )
        await turns.signoff.result(key)
    assert (receipt.status, once.failed) == ("accepted", {names.DECIDE})
    assert len(ledger.rows) == 1


async def drop_update(client: Client, task_queue: str) -> list[str]:
    """Complete the queue's next workflow task without an answer to its updates, and return their ids."""
    queue = TaskQueue(name=task_queue, kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL)
    poll = PollWorkflowTaskQueueRequest(namespace=client.namespace, task_queue=queue, identity="forgetful")
    task = await client.workflow_service.poll_workflow_task_queue(poll)
    done = RespondWorkflowTaskCompletedRequest(
        namespace=client.namespace, task_token=task.task_token, identity="forgetful"
    )
    await client.workflow_service.respond_workflow_task_completed(done)
    return [message.protocol_instance_id for message in task.messages]


async def test_answer_dropped_by_a_worker_goes_as_a_signal(turn_rig: TurnRig, ledger: Ledger) -> None:
    # The SDK's core drops updates of a turn that is queried at the same time, and the server then fails them. The
    # receipt is `pending`, and the call runs once in the approver's name. When such a failure was taken for the turn's
    # end, the answer was lost: refused here, and `pending` with a worker, while the turn waited.
    script = [calls(("pay", {"amount": 1})), respond("done")]
    catalog = catalog_of([pay_tool(ledger)])
    async with turn_rig.running(catalog, script) as turns:
        key = await turns.start_waiting()
    async with asyncio.timeout(60):
        patient = RawTurnClient(turn_rig.client, task_queue=turn_rig.task_queue, patience=timedelta(seconds=50))
        receipt, dropped = await asyncio.gather(
            patient.decide(yes(key)), drop_update(turn_rig.client, turn_rig.task_queue)
        )
    assert (receipt.status, receipt.verdict, len(dropped)) == ("pending", "approved", 1)
    assert ledger.rows == []
    async with turn_rig.running(catalog, [respond("done")]) as turns:
        result = await asyncio.wait_for(turns.signoff.result(key), 60)
    assert [(call.code, call.decided_by) for call in result.calls] == [("ok", "approver")]
    assert len(ledger.rows) == 1


async def test_failing_server_raises_server_unavailable(client: Client) -> None:
    away = _over(client, RPCStatusCode.INTERNAL)
    with pytest.raises(ServerUnavailable):
        await away.decide(yes(TurnKey("main", "s", "nowhere")))
