"""Checks that the turn in the task scheduled a Signoff activity.

Anyone with Temporal credentials can schedule any activity of a task queue. Tools and `signoff.outcome` refuse such
callers with an outcome; all others fail here before they begin. Event handlers are exempt, because no turn schedules
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from signoff.contracts.activity_messages import AnswersTask, GateTask, ModelTask, RecordTask, ReplyTask, RunTask
from signoff.contracts.ids import TurnKey, parse_approval_id, parse_workflow_id
from signoff.contracts.names import ACTOR_TURN, EVENT, OUTCOME

OWN: Final = "signoff."
"""The type prefix of activities that are not tools."""


@dataclass(frozen=True)
class ActivityCaller:
    """The activity's scheduler, as reported by the server."""

    workflow_type: str
    workflow_id: str
    activity_type: str
    activity_id: str


def turn_problem(caller: ActivityCaller, turn: TurnKey | None, what: str) -> str:
    """Return why `what` was not scheduled by `turn`, the turn in its task (`None`: no turn), or ""."""
    # Anyone with Temporal credentials can start any activity, directly or from their own workflow.
    if caller.workflow_type != ACTOR_TURN:
        return f"{what} runs only inside a turn"
    if turn is None or caller.workflow_id != turn.workflow_id:
        return "its task names another turn"
    return ""


def caller_problem(caller: ActivityCaller, task: RunTask, activity_type: str) -> str:
    """Return why the turn and call in `task` did not schedule this tool, or ""."""
    problem = turn_problem(caller, task.turn, "this tool")
    if not problem and (caller.activity_type, caller.activity_id) != (activity_type, task.call):
        return "its task names another call"
    return problem


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
    # Tools and `OUTCOME` check their caller against the task, and answer in words for the model. Event handlers
    # belong to no turn and use the store alone.
    if not caller.activity_type.startswith(OWN) or caller.activity_type in (OUTCOME, EVENT):
        return ""
    turns = _turns(args[0], caller) if len(args) == 1 else [None]
    return next(filter(None, (turn_problem(caller, turn, "this activity") for turn in turns)), "")


def _turns(task: Any, caller: ActivityCaller) -> list[TurnKey | None]:
    """`None` for an invalid turn."""
    match task:
        case ModelTask() | GateTask():
            return [TurnKey(task.ctx.tenant, task.ctx.session, task.ctx.turn)]
        case ReplyTask():
            approval = parse_approval_id(task.approval)
            turn = TurnKey(task.ctx.tenant, task.ctx.session, task.ctx.turn)
            return [turn if approval is not None and approval.turn == turn else None]
        case AnswersTask():
            approval = parse_approval_id(task.approval)
            is_other = task.raw is not None and task.raw.approval_id != task.approval
            return [None if approval is None or is_other else approval.turn]
        case RecordTask():
            # Its entries name their streams. `hand_over` drops other turns' entries.
            return [parse_workflow_id(caller.workflow_id)]
    return [None]
