"""A worker stops although its cache holds a run whose ended task was never removed."""

import asyncio
import uuid

import pytest
from activity_kit import worker_deps
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from signoff.store.store import Store
from signoff.worker import SignoffPlugin


@workflow.defn
class KeepsEndedTask:
    """Holds an ended task in the SDK's set, as if the deadlock detector had interrupted its removal."""

    def __init__(self) -> None:
        self._is_ready = False

    @workflow.run
    async def run(self) -> None:
        """Wait forever, so that only an eviction ends this run in the worker."""
        task = asyncio.create_task(workflow.wait_condition(lambda: True))
        await task
        await workflow.sleep(0.01)
        vars(asyncio.get_running_loop())["_tasks"].add(task)
        self._is_ready = True
        await workflow.wait_condition(lambda: False)

    @workflow.query
    def is_ready(self) -> bool:
        return self._is_ready


@pytest.mark.timeout(90)
async def test_worker_stops_although_an_ended_task_remains_in_a_run(
    client: Client, task_queue: str, store: Store
) -> None:
    # Without `_drop_ended_tasks` the SDK repeated the eviction every two seconds, and the worker never stopped.
    plugin = SignoffPlugin(worker_deps(store))
    worker = Worker(
        client,
        task_queue=task_queue,
        workflows=[KeepsEndedTask],
        max_cached_workflows=1,
        workflow_runner=UnsandboxedWorkflowRunner(),
        plugins=[plugin],
    )
    runs = []
    async with worker:
        # The second run evicts the first.
        for _ in range(2):
            name = f"keeps-{uuid.uuid4().hex}"
            runs.append(await client.start_workflow(KeepsEndedTask.run, id=name, task_queue=task_queue))
            while not await runs[-1].query(KeepsEndedTask.is_ready):
                await asyncio.sleep(0.05)
    assert not worker.is_running
    for run in runs:
        await run.terminate()
