import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from tables import table
from temporalio.api.enums.v1 import CommandType
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import WorkflowSerializationContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.worker._command_aware_visitor import CommandInfo

from signoff.temporal import query_fence as looking
from signoff.temporal.query_fence import QueryFence
from signoff.temporal.workflow_runner import FencedRunner

RUN = "run-1"


class Inner(WorkflowRunner, WorkflowInstance):
    """Starts its local activities when started, and records the messages."""

    def __init__(self) -> None:
        self.jobs: list[list[str]] = []

    def prepare_workflow(self, defn: Any) -> None:
        """Do nothing."""

    def create_instance(self, det: Any) -> WorkflowInstance:
        return self

    def activate(self, act: Any) -> Any:
        self.jobs.append([_name(job) for job in act.jobs])
        done = WorkflowActivationCompletion()
        done.successful.SetInParent()
        if any(job.HasField("initialize_workflow") for job in act.jobs):
            command = done.successful.commands.add()
            command.schedule_local_activity.seq = 3
            command.schedule_local_activity.activity_id = "who"
        return done

    def get_serialization_context(self, command_info: Any) -> Any:
        return WorkflowSerializationContext(namespace="default", workflow_id=f"other-{command_info.command_seq}")

    def get_external_store_context(self, command_info: Any) -> Any:
        """Return None."""

    def get_info(self) -> Any:
        return SimpleNamespace(namespace="default", workflow_id="own")

    def get_thread_id(self) -> int | None:
        return None


def _name(job: Any) -> str:
    kind = str(job.WhichOneof("variant"))
    return f"{kind} {job.resolve_activity.seq}" if kind == "resolve_activity" else kind


def act(at: int, *jobs: str, query: str = "q-1") -> Any:
    made = WorkflowActivation(run_id=RUN)
    made.timestamp.seconds = at
    made.history_length = 3
    for kind in jobs:
        job = made.jobs.add()
        getattr(job, kind).SetInParent()
        if kind == "resolve_activity":
            job.resolve_activity.seq, job.resolve_activity.is_local = 3, True
        if kind == "query_workflow":
            job.query_workflow.query_id = query
    return made


@pytest.fixture
def inner() -> Inner:
    return Inner()


def watched(inner: Inner, looks: QueryFence) -> WorkflowInstance:
    det: WorkflowInstanceDetails = None  # type: ignore[assignment]
    instance = FencedRunner(inner, looks, contexts="none").create_instance(det)
    instance.activate(act(1, "initialize_workflow"))
    return instance


async def ended(looks: QueryFence, *, done: bool = True) -> None:
    await looks.end(RUN, "who", done=done)


def ends_at_once(looks: QueryFence, run: str = RUN) -> bool:
    end = looks.end(run, "who", done=True)
    try:
        end.send(None)
    except StopIteration:
        return True
    end.close()
    return False


async def test_answer_is_withheld_if_the_workflow_does_not_know_of_an_ended_activity(inner: Inner) -> None:
    """Its task would be written with that end, and the workflow would learn of it only with the next task."""
    looks = QueryFence()
    watched(inner, looks)
    await ended(looks)
    looks.record_query(RUN)
    assert looks.end_answer(RUN)


async def test_answer_is_sent_if_the_workflow_knows_of_the_end(inner: Inner) -> None:
    looks = QueryFence()
    instance = watched(inner, looks)
    await ended(looks)
    instance.activate(act(2, "resolve_activity"))
    looks.record_query(RUN)
    instance.activate(act(2, "query_workflow"))
    assert not looks.end_answer(RUN)


async def test_end_without_a_query_is_sent_unchanged(inner: Inner) -> None:
    looks = QueryFence()
    watched(inner, looks)
    await ended(looks)
    assert not looks.end_answer(RUN)


async def test_retryable_activity_has_not_ended(inner: Inner) -> None:
    looks = QueryFence()
    watched(inner, looks)
    await ended(looks, done=False)
    looks.record_query(RUN)
    assert not looks.end_answer(RUN)


async def test_late_end_does_not_count(inner: Inner) -> None:
    looks = QueryFence()
    instance = watched(inner, looks)
    instance.activate(act(2, "resolve_activity"))
    await ended(looks)
    instance.activate(act(3, "initialize_workflow"))
    looks.record_query(RUN)
    assert not looks.end_answer(RUN)
    await ended(looks)
    instance.activate(act(4, "initialize_workflow"))
    looks.record_query(RUN)
    assert not looks.end_answer(RUN)


async def test_evicted_run_is_forgotten(inner: Inner) -> None:
    looks = QueryFence()
    instance = watched(inner, looks)
    await ended(looks)
    looks.record_query(RUN)
    instance.activate(act(2, "remove_from_cache"))
    assert not looks.end_answer(RUN)


async def test_no_activity_ends_between_a_query_and_a_moment_after_its_answer(inner: Inner) -> None:
    looks = QueryFence()
    instance = watched(inner, looks)
    looks.record_query(RUN)
    end = asyncio.create_task(ended(looks))
    await asyncio.wait({end}, timeout=3 * looking.REST)
    assert not end.done()
    assert instance.activate(act(2, "query_workflow")).WhichOneof("status") == "successful"
    # Taken earlier, because a busy machine may pause in between for as long as the rest takes.
    answered = time.monotonic()
    assert not looks.end_answer(RUN)
    await asyncio.wait_for(end, 60)
    assert time.monotonic() - answered >= looking.REST


async def test_recently_queried_run_delays_ends_after_any_answer(inner: Inner) -> None:
    """Otherwise the end that fails a task because of a query would also fail the retry, because the query repeats."""
    looks = QueryFence()
    instance = watched(inner, looks)
    looks.record_query(RUN)
    looks.end_answer(RUN)
    instance.activate(act(2, "remove_from_cache"))
    # The task is retried: its first answer belongs to no query.
    instance.activate(act(1, "initialize_workflow"))
    answered = time.monotonic()
    for run in (RUN, "run-2"):
        looks.end_answer(run)
    assert ends_at_once(looks, "run-2")
    await ended(looks)
    assert time.monotonic() - answered >= looking.REST


async def test_run_queried_long_ago_is_like_any_other(inner: Inner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "LATELY", 0.0)
    looks = QueryFence()
    instance = watched(inner, looks)
    looks.record_query(RUN)
    looks.end_answer(RUN)
    instance.activate(act(2, "remove_from_cache"))
    instance.activate(act(1, "initialize_workflow"))
    looks.end_answer(RUN)
    assert ends_at_once(looks)


async def test_query_of_a_run_without_activities_delays_no_later_one(inner: Inner) -> None:
    """Each answer would delay a decision right after it by the pause."""
    looks = QueryFence()
    det: WorkflowInstanceDetails = None  # type: ignore[assignment]
    instance = FencedRunner(inner, looks, contexts="none").create_instance(det)
    looks.record_query(RUN)
    instance.activate(act(1, "query_workflow"))
    looks.end_answer(RUN)
    instance.activate(act(1, "initialize_workflow"))
    looks.end_answer(RUN)
    assert ends_at_once(looks)


@pytest.mark.parametrize(
    ("length", "seconds", "replaying", "expected"),
    [
        (9, 2, False, []),
        (9, 1, False, [RUN]),
        (3, 1, False, []),
        (9, 1, True, []),
    ],
    ids=["of-a-task-of-its-own", "of-none", "of-the-same-task", "read-anew"],
)
async def test_run_ahead_of_its_history_is_evicted(
    inner: Inner, length: int, seconds: int, replaying: bool, expected: list[str]
) -> None:
    looks, gone = QueryFence(), list[str]()
    looks.release = gone.append
    instance = watched(inner, looks)
    later = act(seconds, "signal_workflow")
    later.history_length, later.is_replaying = length, replaying
    instance.activate(later)
    assert gone == expected


async def test_run_that_started_something_outside_a_task_is_evicted(inner: Inner) -> None:
    looks, gone = QueryFence(), list[str]()
    looks.release = gone.append
    instance = watched(inner, looks)
    instance.activate(act(1, "query_workflow"))
    assert gone == []
    instance.activate(act(1, "query_workflow", query="legacy_query"))
    assert gone == [RUN]


def live(at: int, length: int, *jobs: str, replaying: bool = False, query: str = "q-1") -> Any:
    made = act(at, *jobs, query=query)
    made.history_length, made.is_replaying = length, replaying
    return made


@table(
    ("activations", "expected"),
    # Later events of a lost worker's task have the time of that task.
    ([live(1, 3, "signal_workflow", replaying=True), live(2, 9, "signal_workflow")], [RUN]),
    # One task, in two parts.
    (
        [
            live(1, 3, "signal_workflow", replaying=True),
            live(2, 9, "signal_workflow"),
            live(2, 9, "resolve_activity"),
        ],
        [RUN],
    ),
    ([live(1, 3, "signal_workflow", replaying=True)], []),
    (
        [
            live(1, 3, "signal_workflow", replaying=True),
            live(2, 9, "signal_workflow"),
            live(3, 12, "signal_workflow"),
        ],
        [],
    ),
    ([live(2, 9, "signal_workflow")], []),
)
def test_replayed_run_is_evicted_if_its_first_live_events_are_queried_separately(
    activations: list[Any], expected: list[str]
) -> None:
    # After a worker is lost, the server hands out its task again, with later events after a query. The workflow wrote
    # its search attributes for that query and then accepted an update with the task. Replayed, it did so in reverse
    # (`Update machine does not handle this event: HistoryEvent(id: 12, UpsertWorkflowSearchAttributes)`).
    looks, gone = QueryFence(), list[str]()
    looks.release = gone.append
    instance = watched(Inner(), looks)
    for activation in (live(1, 3, "resolve_activity"), *activations):
        instance.activate(activation)
    instance.activate(live(3, 12, "query_workflow", query="q-1"))
    assert gone == []
    instance.activate(live(3, 12, "query_workflow", query="legacy_query"))
    assert gone == expected


def test_only_data_of_another_workflow_uses_the_instances_context(inner: Inner) -> None:
    det: WorkflowInstanceDetails = None  # type: ignore[assignment]
    instance = FencedRunner(inner, QueryFence(), contexts="workflow").create_instance(det)
    found = {
        kind: instance.get_serialization_context(None if kind is None else CommandInfo(kind, 7))
        for kind in (
            None,
            CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK,
            CommandType.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION,
            CommandType.COMMAND_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION,
            CommandType.COMMAND_TYPE_SCHEDULE_NEXUS_OPERATION,
        )
    }
    names = [each.workflow_id for each in found.values() if isinstance(each, WorkflowSerializationContext)]
    assert names == ["own", "own", "other-7", "other-7", "other-7"]
