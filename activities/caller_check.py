"""Checks that the turn in the task scheduled a Signoff activity.

Anyone with Temporal credentials can schedule any activity of a task queue. Tools and `signoff.outcome` refuse such
callers with an outcome; all others fail here before they begin. Event handlers are exempt, because no turn schedules
them.
"""

from collections.abc import Sequence
from typing import Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from signoff.activities.permit_check import ActivityCaller, turn_problem
from signoff.contracts.activity_messages import AnswersTask, GateTask, ModelTask, RecordTask
from signoff.contracts.decision import Decision
from signoff.contracts.ids import TurnKey, parse_approval_id, parse_workflow_id
from signoff.contracts.names import EVENT, OUTCOME

OWN: Final = "signoff."
"""The type prefix of activities that are not tools."""


class CallerInterceptor(Interceptor):
    """Checks the caller of each of the worker's own Signoff activities."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Checked(next)


class _Checked(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        problem = own_problem(current_caller(), input.args)
        if problem:
            activity.logger.warning("refused to run an activity: %s", problem)
            # Do not retry: such a caller is never a turn.
            raise ApplicationError(problem, type="Refused", non_retryable=True)
        return await super().execute_activity(input)


def current_caller() -> ActivityCaller:
    """Return the caller of the running activity, as named by the server."""
    info = activity.info()
    return ActivityCaller(info.workflow_type or "", info.workflow_id or "", info.activity_type, info.activity_id)


def own_problem(caller: ActivityCaller, args: Sequence[Any]) -> str:
    """Return why this caller may not run this Signoff activity with these arguments, or ""."""
    # Tools and `OUTCOME` check their caller against the permit, and answer in words for the model. Event handlers
    # belong to no turn and use the store alone.
    if not caller.activity_type.startswith(OWN) or caller.activity_type in (OUTCOME, EVENT):
        return ""
    turns = _turns(args[0], caller) if len(args) == 1 else [None]
    return next(filter(None, (turn_problem(caller, turn, "this activity", "its task") for turn in turns)), "")


def _turns(task: Any, caller: ActivityCaller) -> list[TurnKey | None]:
    """`None` for an invalid turn."""
    match task:
        case ModelTask() | GateTask():
            return [TurnKey(task.ctx.tenant, task.ctx.session, task.ctx.turn)]
        case Decision() | AnswersTask():
            approval = parse_approval_id(task.approval_id if isinstance(task, Decision) else task.approval)
            return [None if approval is None else approval.turn]
        case RecordTask():
            # Its entries name their streams. `hand_over` drops other turns' entries.
            return [parse_workflow_id(caller.workflow_id)]
    return [None]
