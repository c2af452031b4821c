"""The hand-written side: a caller and a workflow without Signoff."""

import uuid
from typing import Any, Final

from temporalio.client import Client, WithStartWorkflowOperation
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import Worker

from tools.bench.baseline import OneActivity, Payment, RunElsewhere, allow, transfer
from tools.bench.sides import handmade_worker

PAYMENT: Final = Payment(20, "Ana")


class CallFailed(Exception):
    """A call did not do the measured work, so there is nothing to compare."""


def require(right: object, found: object) -> None:
    if not right:
        raise CallFailed(f"a call did not do its work: {found}")


class HandWritten:
    """The hand-written caller and workflow. `client` is Temporal's own."""

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue

    def worker(self) -> Worker:
        """The worker has Signoff's options and is not yet running."""
        return handmade_worker(self._client, self._task_queue, [OneActivity, RunElsewhere], [allow, transfer])

    async def run(self) -> str:
        given = uuid.uuid4().hex
        paid = await self._client.execute_workflow(OneActivity.run, PAYMENT, id=given, task_queue=self._task_queue)
        require(paid == "paid", paid)
        return given

    async def permit(self) -> str:
        given = uuid.uuid4().hex
        start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            RunElsewhere.run,
            PAYMENT,
            id=given,
            task_queue=self._task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        )
        allowed = await self._client.execute_update_with_start_workflow(
            RunElsewhere.permit, PAYMENT, start_workflow_operation=start
        )
        require(allowed, allowed)
        return given

    async def report(self, given: str) -> None:
        told = await self._client.get_workflow_handle(given).execute_update(RunElsewhere.report, "paid")
        require(told == "paid", told)
