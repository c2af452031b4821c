"""Runs workflow instances so that a history read anew gives the order of events that happened.

The SDK's core answers queries while local activities of the same task still run, and ends the task with such an answer.
An activity that ended before it is written to history with that task, but the workflow gets its result with the next
task only. From the history it is read the other way round: commands then come in another order, a timer that was
started in the first task and cancelled in the second is none at all, the SDK calls the turn nondeterministic, and it
hangs for ever. So this runner fails such a task, of which then nothing is written: the server gives it out again, and
its local activities run again. It is rare, as `temporal/query_fence.py` keeps activities from ending from a query's
arrival here until its answer: one has to end while the query is on its way from the core. The core takes messages in
the order in which they are sent; so `FencedBridge` stands where they are sent.

The server may hand the core a query by itself together with events since the last task, for which a task is yet to
come: the core has the workflow process them at once, and again nothing of them when the task comes, with more. Read
anew both come together. So a run that is ahead of its history is let go once the query is answered, and read anew.
The core gives such events the time of the last task, or that of a task whose worker was lost. A worker gets the latter
for runs that it reads anew, so it lets each of these go whose first live events are followed by a query by itself.
"""

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
QUERY_MET_END: Final = "a local activity ended while the turn was queried; the task is tried again, and nothing is lost"
"""Why a task failed of which a query was to be answered; seen in Temporal's UI and in the worker's log."""
_APART: Final = "legacy_query"
"""The id of a query that is answered by itself, outside a workflow task."""


class FencedRunner(WorkflowRunner):
    """Wraps another runner of the SDK, so that its instances get the events known to `fence` in order.

    For every payload the SDK asks an instance three to four times in which context it is to be encoded, and makes a
    converter for each answer: a tenth of all our work. Only a codec or external storage makes use of the answer, so
    `contexts` says which are told: `none`; those of a `workflow`, for a codec that reads nothing but whose payload it
    is; or `all`, as the inner runner tells them.

    Workflows of the types in `upgrading` go on with the version that is current, whatever the worker's others do. Of a
    worker that has no version the server would refuse that, so it does not stand on the class.
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
        """See `WorkflowRunner`."""
        self.inner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """See `WorkflowRunner`."""
        upgrading = bool(self._upgrading) and det.info.workflow_type in self._upgrading
        return self._kind(self.inner.create_instance(det), self._fence, upgrading=upgrading)

    def set_worker_level_failure_exception_types(self, types: Any) -> None:
        """See `WorkflowRunner`."""
        self.inner.set_worker_level_failure_exception_types(types)


class FencedBridge(Bridge):
    """Passes a worker's messages to the SDK's core, and records in `fence` what was sent, and when."""

    def __init__(self, inner: Bridge, fence: QueryFence) -> None:
        self._ref = inner._ref
        self._fence = fence
        fence.release = self.request_workflow_eviction

    async def poll_workflow_activation(self) -> Any:
        """See `Bridge`."""
        act = await super().poll_workflow_activation()
        # Known from here on: until it reaches its workflow, on a busy machine, most local activities have ended.
        if _is_query(act) and not _is_apart(act):
            self._fence.record_query(act.run_id)
        return act

    async def complete_workflow_activation(self, comp: Any) -> None:
        """See `Bridge`."""
        await super().complete_workflow_activation(_fail(comp.run_id) if self._fence.end_answer(comp.run_id) else comp)


class _Watched(WorkflowInstance):
    def __init__(self, inner: WorkflowInstance, fence: QueryFence, *, upgrading: bool = False) -> None:
        self._inner = inner
        self._fence = fence
        self._upgrading = upgrading
        self._begun: dict[int, str] = {}
        """Local activities of which the workflow has not heard that they ended: number -> activity id."""
        self._before: Any = None
        self._is_unsure = False
        """Whether the last activation is the first live one of a run that was read anew, so may belong to no task."""

    def activate(self, act: Any) -> Any:
        """Answers the core; its messages are those of the SDK's bridge."""
        done = self._take(act)
        if self._upgrading and done.HasField("successful"):
            done.successful.versioning_behavior = VersioningBehavior.AUTO_UPGRADE.value
        return done

    def _take(self, act: Any) -> Any:
        if _is_query(act):
            # No task ends before its local activities have, so of one outside a task these were begun ahead of theirs.
            if _is_apart(act) and (self._begun or self._is_unsure):
                self._fence.release(act.run_id)
            return self._inner.activate(act)
        # A run that is let go may be read anew here: what its old instance knew is nothing that the new one has heard.
        if any(job.HasField("remove_from_cache") for job in act.jobs):
            self._fence.forget(act.run_id)
        if self._is_ahead(act):
            self._fence.release(act.run_id)
        ended = [job for job in act.jobs if job.HasField("resolve_activity") and job.resolve_activity.is_local]
        if ended:
            known = [self._begun.pop(job.resolve_activity.seq, "") for job in ended]
            self._fence.record_known(act.run_id, known)
        return self._follow(act)

    def _is_ahead(self, act: Any) -> bool:
        # Each task has a time of its own, so what comes later at the time of the last one belongs to none.
        before = self._before
        if before is None or act.is_replaying:
            return False
        return bool(act.history_length > before.history_length and act.timestamp == before.timestamp)

    def _follow(self, act: Any) -> Any:
        done = self._inner.activate(act)
        # Of a failed completion this reads an empty message: protobuf gives unset fields their default.
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
    # The core gives queries an activation of their own, so the first job tells for all.
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
        # Activities are of their workflow; what is for another one, or for none, the instance alone knows.
        if command_info is None or command_info.command_type == CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK:
            return self._own
        return self._inner.get_serialization_context(command_info)


_KINDS: Final[Mapping[Contexts, type[_Watched]]] = {
    "none": _WithoutContexts,
    "workflow": _WithWorkflows,
    "all": _Watched,
}
