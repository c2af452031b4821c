"""Runs workflow instances so that a replayed history has the original order of events.

The SDK's core answers queries while local activities of the same task still run, and ends the task with that answer.
The history then holds an activity's earlier end with this task, but the workflow gets the result only with the next
one. Replay reverses that order. Commands differ: a timer started in the first task and cancelled in the second
disappears. The SDK calls the turn nondeterministic, and it hangs forever.

Therefore this runner fails such a task before anything is written. The server schedules it again, and its local
activities run again. This is rare: `temporal/query_fence.py` delays the end of activities between a query's arrival
here and its answer. Only an activity that ends while the query is on its way from the core causes it. The core reads
messages in sending order, so `FencedBridge` wraps the sending.

The server may pass the core a separate query with events since the last task, before their own task. The core lets the
workflow process them at once, and omits them from the later task, which has more events. On replay, both come together.
Therefore a run ahead of its history is evicted after the answer, and replayed.

The core gives such events the time of the last task, or of a task with a lost worker. A worker gets the latter for
replayed runs. Therefore it evicts each replayed run whose first live events are followed by a separate query.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal

from temporalio.api.enums.v1 import CommandType
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.bridge.worker import Worker as Bridge
from temporalio.common import VersioningBehavior
from temporalio.converter import StorageDriverStoreContext, WorkflowSerializationContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.workflow import Info

from signoff.temporal.query_fence import QueryFence

Contexts = Literal["none", "workflow", "all"]
QUERY_MET_END: Final = "a local activity ended while the turn was queried; the task is retried, without any loss"
"""The failure message of a task with a pending query, for Temporal's UI and the worker's log."""
_APART: Final = "legacy_query"
"""The id of a query that is answered separately, outside a workflow task."""


class FencedRunner(WorkflowRunner):
    """Wraps another runner of the SDK, so that its instances get the events known to `fence` in order.

    For every payload, the SDK asks an instance three to four times for its encoding context, and creates a converter
    for each answer: a tenth of Signoff's work. Only a codec or external storage uses the answer. `contexts` selects the
    answers: `none`; the context of a `workflow`, for a codec that reads only the payload's workflow; or `all` of the
    inner runner's.

    Workflows of the types in `upgrading` use the current version, regardless of the worker's others. The server would
    reject that for an unversioned worker, so it is not set on the class.
    """

    def __init__(
        self, inner: WorkflowRunner, fence: QueryFence, *, contexts: Contexts, upgrading: Collection[str] = ()
    ) -> None:
        self.inner = inner
        self.contexts = contexts
        self._upgrading = frozenset(upgrading)
        self._fence = fence
        self._kind = _KINDS[contexts]

    def prepare_workflow(self, defn: Any) -> None:
        self.inner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        upgrading = bool(self._upgrading) and det.info.workflow_type in self._upgrading
        return self._kind(self.inner.create_instance(det), self._fence, upgrading=upgrading)

    def set_worker_level_failure_exception_types(self, types: Any) -> None:
        self.inner.set_worker_level_failure_exception_types(types)


class FencedBridge(Bridge):
    """Passes a worker's messages to the SDK's core, and records in `fence` the messages and their times."""

    def __init__(self, inner: Bridge, fence: QueryFence) -> None:
        self._ref = inner._ref
        self._fence = fence
        fence.release = self.request_workflow_eviction

    async def poll_workflow_activation(self) -> Any:
        act = await super().poll_workflow_activation()
        # Record it here: on a busy machine, most local activities end before the query reaches its workflow.
        if _is_query(act) and not _is_apart(act):
            self._fence.record_query(act.run_id)
        return act

    async def complete_workflow_activation(self, comp: Any) -> None:
        await super().complete_workflow_activation(_fail(comp.run_id) if self._fence.end_answer(comp.run_id) else comp)


class _Watched(WorkflowInstance):
    def __init__(self, inner: WorkflowInstance, fence: QueryFence, *, upgrading: bool = False) -> None:
        self._inner = inner
        self._fence = fence
        self._upgrading = upgrading
        self._begun: dict[int, str] = {}
        """Maps the numbers of local activities whose end the workflow does not know to their activity ids."""
        self._before: Any = None
        self._is_evicting = False
        self._is_unsure = False
        """True if the last activation is the first live one after a replay, and so may belong to no task."""

    def activate(self, act: Any) -> Any:
        """The messages have the types of the SDK's bridge."""
        done = self._take(act)
        if self._upgrading and done.HasField("successful"):
            done.successful.versioning_behavior = VersioningBehavior.AUTO_UPGRADE.value
        return done

    def _take(self, act: Any) -> Any:
        if _is_query(act):
            # A task ends only after its local activities. With a query outside a task, these began ahead of theirs.
            if _is_apart(act) and (self._begun or self._is_unsure):
                self._fence.release(act.run_id)
            return self._inner.activate(act)
        # An evicted run may be replayed here: the new instance has not received the old one's events.
        if any(job.HasField("remove_from_cache") for job in act.jobs):
            self._fence.forget(act.run_id)
            self._drop_ended_tasks()
        if self._is_ahead(act):
            self._fence.release(act.run_id)
        ended = [job for job in act.jobs if job.HasField("resolve_activity") and job.resolve_activity.is_local]
        if ended:
            known = [self._begun.pop(job.resolve_activity.seq, "") for job in ended]
            self._fence.record_known(act.run_id, known)
        return self._follow(act)

    def _drop_ended_tasks(self) -> None:
        """Remove the ended tasks of a run if the SDK repeats its eviction.

        The SDK's deadlock detector can interrupt the removal of an ended task. The SDK then repeats the eviction
        forever, and its worker does not stop. Instances in a sandbox hide their tasks.
        """
        if self._is_evicting:
            tasks: set[asyncio.Task[Any]] = getattr(self._inner, "_tasks", set())
            tasks.difference_update([task for task in tasks if task.done()])
        self._is_evicting = True

    def _is_ahead(self, act: Any) -> bool:
        # Each task has its own time, so later events with the last task's time belong to no task.
        before = self._before
        if before is None or act.is_replaying:
            return False
        return bool(act.history_length > before.history_length and act.timestamp == before.timestamp)

    def _follow(self, act: Any) -> Any:
        done = self._inner.activate(act)
        # For a failed completion this reads an empty message: protobuf gives unset fields their default.
        for command in done.successful.commands:
            if command.HasField("schedule_local_activity"):
                begun = command.schedule_local_activity
                self._begun[begun.seq] = begun.activity_id
                self._fence.record_begun(act.run_id, begun.activity_id)
        before, self._before = self._before, act
        if before is not None and not act.is_replaying and act.history_length > before.history_length:
            self._is_unsure = before.is_replaying
        return done

    def get_serialization_context(self, command_info: Any) -> Any:
        return self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        return self._inner.get_external_store_context(command_info)

    def get_info(self) -> Info:
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        return self._inner.get_thread_id()


def _is_query(act: Any) -> bool:
    # The core gives queries a separate activation, so the first job is enough.
    return bool(act.jobs) and act.jobs[0].HasField("query_workflow")


def _is_apart(act: Any) -> bool:
    return bool(act.jobs[0].query_workflow.query_id == _APART)


def _fail(run_id: str) -> WorkflowActivationCompletion:
    done = WorkflowActivationCompletion(run_id=run_id)
    done.failed.failure.message = QUERY_MET_END
    done.failed.failure.application_failure_info.type = "QueryMetEnd"
    return done


class _WithoutStorage(_Watched):
    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        return StorageDriverStoreContext(target=None)


class _WithoutContexts(_WithoutStorage):
    def get_serialization_context(self, command_info: Any) -> None:
        return None


class _WithWorkflows(_WithoutStorage):
    def __init__(self, inner: WorkflowInstance, fence: QueryFence, *, upgrading: bool = False) -> None:
        super().__init__(inner, fence, upgrading=upgrading)
        info = inner.get_info()
        self._own = WorkflowSerializationContext(namespace=info.namespace, workflow_id=info.workflow_id)

    def get_serialization_context(self, command_info: Any) -> Any:
        # Activities belong to their workflow. Only the instance knows the context of other payloads.
        if command_info is None or command_info.command_type == CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK:
            return self._own
        return self._inner.get_serialization_context(command_info)


_KINDS: Final[Mapping[Contexts, type[_Watched]]] = {
    "none": _WithoutContexts,
    "workflow": _WithWorkflows,
    "all": _Watched,
}
