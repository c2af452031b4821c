"""What an instance hears first, by the messages of the SDK's bridge alone."""

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
    """Begins the local activities it is found to when asked to start, and writes down what it hears."""

    def __init__(self) -> None:
        self.jobs: list[list[str]] = []

    def prepare_workflow(self, defn: Any) -> None:
        """Nothing to prepare."""

    def create_instance(self, det: Any) -> WorkflowInstance:
        return self

    def activate(self, act: Any) -> Any:
        """Begin a local activity where it is asked to start."""
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
        """None."""

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
    """An instance that has begun local activity 3, `who`."""
    det: WorkflowInstanceDetails = None  # type: ignore[assignment]
    instance = FencedRunner(inner, looks, contexts="none").create_instance(det)
    instance.activate(act(1, "initialize_workflow"))
    return instance


async def ended(looks: QueryFence, *, done: bool = True) -> None:
    await looks.end(RUN, "who", done=done)


def ends_at_once(looks: QueryFence, run: str = RUN) -> bool:
    """Whether a local activity of a run ends without waiting for anything, however slow the machine is."""
    end = looks.end(run, "who", done=True)
    try:
        end.send(None)
    except StopIteration:
        return True
    end.close()
    return False


async def test_an_answer_is_not_sent_where_an_activity_ended_of_which_the_workflow_does_not_know(inner: Inner) -> None:
    """Its task would be written with that end, and the workflow hear of it with the next."""
    looks = QueryFence()
    watched(inner, looks)
    await ended(looks)
    looks.record_query(RUN)
    assert looks.end_answer(RUN)


async def test_an_answer_is_sent_where_the_workflow_knows_of_the_end(inner: Inner) -> None:
    looks = QueryFence()
    instance = watched(inner, looks)
    await ended(looks)
    instance.activate(act(2, "resolve_activity"))
    looks.record_query(RUN)
    instance.activate(act(2, "query_workflow"))
    assert not looks.end_answer(RUN)


async def test_what_ended_without_a_query_is_sent_as_it_is(inner: Inner) -> None:
    looks = QueryFence()
    watched(inner, looks)
    await ended(looks)
    assert not looks.end_answer(RUN)


async def test_what_may_be_tried_again_has_not_ended(inner: Inner) -> None:
    looks = QueryFence()
    watched(inner, looks)
    await ended(looks, done=False)
    looks.record_query(RUN)
    assert not looks.end_answer(RUN)


async def test_an_end_that_comes_late_counts_for_nothing(inner: Inner) -> None:
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


async def test_a_run_that_is_kept_no_longer_is_forgotten(inner: Inner) -> None:
    looks = QueryFence()
    instance = watched(inner, looks)
    await ended(looks)
    looks.record_query(RUN)
    instance.activate(act(2, "remove_from_cache"))
    assert not looks.end_answer(RUN)


async def test_nothing_ends_from_when_a_query_is_here_until_a_moment_after_its_answer_was_sent(inner: Inner) -> None:
    looks = QueryFence()
    instance = watched(inner, looks)
    looks.record_query(RUN)
    end = asyncio.create_task(ended(looks))
    await asyncio.wait({end}, timeout=3 * looking.REST)
    assert not end.done()
    assert instance.activate(act(2, "query_workflow")).WhichOneof("status") == "successful"
    # Taken before: between the two a busy machine may stand still for as long as the rest takes.
    answered = time.monotonic()
    assert not looks.end_answer(RUN)
    await asyncio.wait_for(end, 60)
    assert time.monotonic() - answered >= looking.REST


async def test_of_a_run_that_was_queried_lately_nothing_ends_right_after_any_answer(inner: Inner) -> None:
    """Else the end that fails a task because of a query would fail the next try as well, as the query comes again."""
    looks = QueryFence()
    instance = watched(inner, looks)
    looks.record_query(RUN)
    looks.end_answer(RUN)
    instance.activate(act(2, "remove_from_cache"))
    # The task is tried again: its first answer is no query's.
    instance.activate(act(1, "initialize_workflow"))
    answered = time.monotonic()
    for run in (RUN, "run-2"):
        looks.end_answer(run)
    assert ends_at_once(looks, "run-2")
    await ended(looks)
    assert time.monotonic() - answered >= looking.REST


async def test_a_run_that_was_queried_long_ago_is_like_any_other(inner: Inner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "LATELY", 0.0)
    looks = QueryFence()
    instance = watched(inner, looks)
    looks.record_query(RUN)
    looks.end_answer(RUN)
    instance.activate(act(2, "remove_from_cache"))
    instance.activate(act(1, "initialize_workflow"))
    looks.end_answer(RUN)
    assert ends_at_once(looks)


async def test_a_query_of_a_run_without_activities_holds_up_none_that_it_begins_later(inner: Inner) -> None:
    """Each answer would cost a decision that comes right after it a moment's rest."""
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
async def test_a_run_that_is_ahead_of_its_history_is_let_go(
    inner: Inner, length: int, seconds: int, replaying: bool, expected: list[str]
) -> None:
    looks, gone = QueryFence(), list[str]()
    looks.release = gone.append
    instance = watched(inner, looks)
    later = act(seconds, "signal_workflow")
    later.history_length, later.is_replaying = length, replaying
    instance.activate(later)
    assert gone == expected


async def test_a_run_that_began_something_outside_a_task_is_let_go(inner: Inner) -> None:
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
    # What came after a task whose worker was lost has the time of that task.
    ([live(1, 3, "signal_workflow", replaying=True), live(2, 9, "signal_workflow")], [RUN]),
    # Of one task, in two parts.
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
def test_run_that_was_read_anew_is_let_go_where_its_first_live_events_are_queried_apart(
    activations: list[Any], expected: list[str]
) -> None:
    # The server hands out a task that was lost again, and what came since with a query before. The workflow wrote its
    # search attributes for that query, then accepted an update with the task; read anew it does so the other way round
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


def test_only_what_is_for_another_workflow_is_asked_of_the_instance(inner: Inner) -> None:
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
