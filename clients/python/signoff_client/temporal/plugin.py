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
"""From which part of their letters two names are taken for one that was mistyped."""

Named = str | Callable[..., Any] | GatedActivity


class Gated(SimplePlugin):
    """Has the activities that it names run only once they are permitted, with what was approved, once.

    It belongs to the workers of the workflows and to those of the activities, or to the client that they are made
    with, and to replayers.
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
        """Gates `activities`; a mapping says what each is called at the gateway.

        `user` is called in the workflow and says in whose name it asks, else the gate's. A workflow that is told
        nothing looks after `look_up`, and then after twice as long each time, up to a day. A gateway that gives no
        answer is tried again for `patience`, then it means no. `task_queue` is where the gate's own activities run,
        where that is not the workflow's own. Raises `ValueError` for a function that is no activity, or named twice.
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
        """Learns the names of arguments from the worker's functions, where the gate knows an activity by its name.

        Raises `ValueError` for a name that the worker has with other letters: nobody would be asked about that one.
        """
        known = {}
        for function in worker.config(active_config=True).get("activities", ()):
            definition = activity._Definition.from_callable(function)
            if definition is not None and definition.name:
                known[definition.name] = function
        for name, reader in self._readers.items():
            if name in known and reader.names is None:
                self._readers[name] = CallReader(reader.gated, argument_names(known[name]))
            elif name not in known:
                if alike := difflib.get_close_matches(name, known.keys() - self._readers, n=1, cutoff=_ALIKE):
                    raise ValueError(f"this worker has no activity `{name}`, but `{alike[0]}`: name it as it is there")
                _LOG.warning("no activity `%s` is known to this worker: only one of just that name is gated", name)
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
    """Lets workflows import this package as it is: each of them would load it, and its HTTP library, anew."""
    runner = runner or SandboxedWorkflowRunner()
    if not isinstance(runner, SandboxedWorkflowRunner):
        return runner
    return dataclasses.replace(runner, restrictions=runner.restrictions.with_passthrough_modules("signoff_client"))
