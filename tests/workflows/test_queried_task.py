import asyncio
import contextlib
import uuid
from datetime import timedelta
from typing import Any

import pytest
from activity_kit import worker_deps
from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType
from temporalio.bridge.proto import ActivityTaskCompletion
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.worker import Worker as Bridge
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.exceptions import TimeoutError as TimedOut
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker
from turn_fixtures import Ledger, pay_tool

from signoff.store.store import Store
from signoff.temporal.workflow_runner import QUERY_MET_END, FencedBridge
from signoff.worker import SignoffPlugin

ARRIVAL = 0.1
"""Seconds until a query reaches the server, and an activity's end the SDK's core."""
TAKES = 0.05
LASTS = 0.2
"""Seconds until the activity times out, where it does."""
HELD = 0.5
"""Seconds in which the local activity ends if nothing delays it."""
TRIES = 20
"""A busy machine may need longer than `ARRIVAL`. The query then joins another task, and another turn is tried."""


@activity.defn
async def look_up(end: str) -> None:
    """Take as long as the store of a busy machine, so that the query arrives first."""
    await asyncio.sleep(60 if end == "times out" else TAKES)
    if end == "fails":
        raise ApplicationError("not there", non_retryable=True)


@workflow.defn
class Waits:
    def __init__(self) -> None:
        self._begun = self._known = False
        self._end = ""

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self._begun)
        looking = asyncio.create_task(self._look())
        await workflow.wait_condition(lambda: self._known, timeout=3600)
        await looking

    async def _look(self) -> None:
        within = timedelta(seconds=LASTS if self._end == "times out" else 60)
        with contextlib.suppress(ApplicationError, ActivityError, TimedOut):
            await workflow.execute_local_activity(look_up, self._end, schedule_to_close_timeout=within)
        self._known = True

    @workflow.signal
    async def begin(self, end: str) -> None:
        self._begun, self._end = True, end

    @workflow.query
    def known(self) -> bool:
        return self._known


class Held:
    """Delays the first query of a task, as a busy machine may, until its local activity ends or has had time to end."""

    def __init__(self, patched: pytest.MonkeyPatch, bridge: type[Bridge]) -> None:
        self.armed = self.queried = False
        self._ended = asyncio.Event()
        poll, complete = bridge.poll_workflow_activation, Bridge.complete_activity_task

        async def poll_later(of: Bridge) -> WorkflowActivation:
            act = await poll(of)
            within = bool(act.jobs) and act.jobs[0].query_workflow.query_id not in ("", "legacy_query")
            if self.armed and within and not self.queried:
                self.queried = True
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), HELD)
                await asyncio.sleep(ARRIVAL)
            return act

        async def complete_and_say(of: Bridge, completion: ActivityTaskCompletion) -> None:
            await complete(of, completion)
            self._ended.set()

        patched.setattr(bridge, "poll_workflow_activation", poll_later)
        patched.setattr(Bridge, "complete_activity_task", complete_and_say)


async def run_queried(
    client: Client, task_queue: str, plugin: SignoffPlugin, held: Held, end: str
) -> WorkflowHandle[Any, Any]:
    """The query arrives in the task that starts the workflow's timer if it is in time."""
    shared: dict[str, Any] = {"task_queue": task_queue, "workflows": [Waits], "activities": [look_up]}
    shared["workflow_runner"] = UnsandboxedWorkflowRunner()
    handle = await client.start_workflow(Waits.run, id=f"waits-{uuid.uuid4().hex}", task_queue=task_queue)
    # No worker may cache the run, or its next task would go to that worker's own queue first.
    async with Worker(client, max_cached_workflows=0, **shared):
        assert not await handle.query(Waits.known)
    held.armed = True
    await handle.signal(Waits.begin, end)
    query = asyncio.create_task(handle.query(Waits.known))
    await asyncio.sleep(ARRIVAL)
    async with Worker(client, plugins=[plugin], **shared):
        await handle.result()
        await query
    return handle


@pytest.mark.parametrize(
    ("bridge", "end", "failures"),
    [
        (Bridge, "ends", [QUERY_MET_END]),
        (Bridge, "fails", [QUERY_MET_END]),
        (FencedBridge, "ends", []),
        (FencedBridge, "fails", []),
        # The SDK's core may end it while a query is answered.
        (FencedBridge, "times out", [QUERY_MET_END]),
    ],
    ids=["sent-ends", "sent-fails", "here-ends", "here-fails", "here-times-out"],
)
async def test_query_during_an_ending_activity_leaves_a_replayable_history(
    plain_client: Client,
    store: Store,
    task_queue: str,
    monkeypatch: pytest.MonkeyPatch,
    bridge: type[Bridge],
    end: str,
    failures: list[str],
) -> None:
    # An activity that ends while the query is on its way fails the task, which is repeated; otherwise it waits for the
    # answer. Without the fence, the recorded task had a timer that replay never starts, so the turn could be neither
    # queried nor continued (`Update machine does not handle this event: HistoryEvent(id: 21, TimerStarted)`).
    plugin = SignoffPlugin(worker_deps(store, pay_tool(Ledger())))
    runner = UnsandboxedWorkflowRunner()
    replayer = Replayer(workflows=[Waits], workflow_runner=runner)
    for _ in range(TRIES):
        with monkeypatch.context() as patched:
            held = Held(patched, bridge)
            handle = await run_queried(plain_client, task_queue, plugin, held, end)
        history = await handle.fetch_history()
        await replayer.replay_workflow(history)
        if held.queried:
            break
    assert held.queried
    event_type = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    found = [each.workflow_task_failed_event_attributes for each in history.events if each.event_type == event_type]
    assert [each.failure.message for each in found] == failures
