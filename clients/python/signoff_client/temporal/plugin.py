"""The plugin that puts a gate before the dangerous activities of a worker."""

import dataclasses
import difflib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.plugin import SimplePlugin
from temporalio.worker import (
    ActivityInboundInterceptor,
    Interceptor,
    Worker,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowRunner,
)
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from signoff_client.gate import Gate
from signoff_client.temporal.activity_gate import GateActivities, GatedActivities
from signoff_client.temporal.call_decisions import GatePlan
from signoff_client.temporal.gated_activity import CallReader, GatedActivity, argument_names
from signoff_client.temporal.messages import APPROVED, EXTERN, SIGNAL
from signoff_client.temporal.workflow_interceptor import workflow_interceptor

_LOG: Final = logging.getLogger("signoff_client")
_OWN: Final = GatedActivity(APPROVED, tool_at="tool", args_at="args")

_ALIKE: Final = 0.85
"""The least similarity at which a name counts as misspelt."""

Named = str | Callable[..., Any] | GatedActivity


class Gated(SimplePlugin):
    """Runs the named activities only once they are permitted, with the approved arguments, once.

    Give it to the workers of the workflows and of the activities, or to their client, and to replayers.
    """

    def __init__(
        self,
        gate: Gate,
        activities: Iterable[Named] | Mapping[str | Callable[..., Any], str] = (),
        *,
        user: Callable[[], str] | None = None,
        signal: str = SIGNAL,
        look_up: timedelta = timedelta(hours=1),
        patience: timedelta = timedelta(minutes=5),
        task_queue: str | None = None,
    ) -> None:
        """Gate `activities`. A mapping gives each one's name at the gateway.

        `user` is called in the workflow and returns the requester; by default the gate's user. A workflow without a
        signal looks after `look_up`, then after twice as long each time, up to a day. A gateway without an answer is
        retried for `patience`, then the call is denied. `task_queue` is the queue of the gate's own activities, by
        default the workflow's. Raises `ValueError` for a function that is not an activity, or for a repeated one.
        """
        self._readers: dict[str, CallReader] = {APPROVED: CallReader(_OWN)}
        for each in _named(activities):
            if each.name in self._readers:
                raise ValueError(f"activity `{each.name}` is named twice; name it once")
            names = None if isinstance(each.activity, str) else argument_names(each.activity)
            self._readers[each.name] = CallReader(each, names)
        plan = GatePlan(self._readers, signal, look_up, patience, task_queue, user)
        own = GateActivities(gate)
        super().__init__(
            "signoff.gate",
            interceptors=[_GateInterceptor(gate, plan)],
            activities=[own.ask, own.withdraw, own.approved],
            workflow_runner=_pass_through,
        )

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """Read the names of arguments, for activities that are gated by name.

        Raises `ValueError` if the worker has an activity with a similar name: that one would run without approval.
        """
        functions = {}
        for function in worker.config(active_config=True).get("activities", ()):
            definition = activity._Definition.from_callable(function)
            if definition is not None and definition.name:
                functions[definition.name] = function
        for name, reader in self._readers.items():
            if name in functions and reader.names is None:
                self._readers[name] = CallReader(reader.gated, argument_names(functions[name]))
            elif name not in functions:
                if alike := difflib.get_close_matches(name, functions.keys() - self._readers, n=1, cutoff=_ALIKE):
                    raise ValueError(f"this worker has no activity `{name}`; did you mean `{alike[0]}`?")
                _LOG.warning("this worker has no activity `%s`: only an activity with exactly that name is gated", name)
        await super().run_worker(worker, next)


class _GateInterceptor(Interceptor):
    def __init__(self, gate: Gate, plan: GatePlan) -> None:
        self._gate = gate
        self._plan = plan
        self._workflow_class = workflow_interceptor(plan)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return GatedActivities(next, self._gate, self._plan.readers, self._plan.patience)

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        input.unsafe_extern_functions[EXTERN] = _has_gate
        return self._workflow_class


def _has_gate() -> bool:
    return True


def _named(activities: Iterable[Named] | Mapping[str | Callable[..., Any], str]) -> list[GatedActivity]:
    if isinstance(activities, Mapping):
        return [GatedActivity(each, tool) for each, tool in activities.items()]
    return [each if isinstance(each, GatedActivity) else GatedActivity(each) for each in activities]


def _pass_through(runner: WorkflowRunner | None) -> WorkflowRunner:
    """Without this, each workflow would load this package again, with its HTTP library."""
    runner = runner or SandboxedWorkflowRunner()
    if not isinstance(runner, SandboxedWorkflowRunner):
        return runner
    return dataclasses.replace(runner, restrictions=runner.restrictions.with_passthrough_modules("signoff_client"))
