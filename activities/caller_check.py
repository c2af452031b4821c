"""Checks who scheduled Signoff's own activities: only the turn that they are about may.

Whoever holds a Temporal credential may schedule any activity of a task queue, from a workflow of their own or by
itself. Tools and `signoff.outcome` refuse such callers with an outcome; all others fail here before they begin, but for
handlers of events, which no turn schedules.
"""

from collections.abc import Sequence
from typing import Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from signoff.activities.permit_check import ActivityCaller, turn_problem
from signoff.contracts.activity_messages import AnswersTask, GateTask, IdentifyTask, ModelTask, RecordTask
from signoff.contracts.ids import TurnKey, parse_approval_id, parse_workflow_id
from signoff.contracts.names import EVENT, OUTCOME

OWN: Final = "signoff."
"""The prefix of the types of activities that are no tools."""


class CallerInterceptor(Interceptor):
    """Checks the caller of each of Signoff's own activities of a worker."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """See `Interceptor`."""
        return _Checked(next)


class _Checked(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        problem = own_problem(current_caller(), input.args)
        if problem:
            activity.logger.warning("refused to run an activity: %s", problem)
            # Not tried again: whatever such a caller says next, it is no turn.
            raise ApplicationError(problem, type="Refused", non_retryable=True)
        return await super().execute_activity(input)


def current_caller() -> ActivityCaller:
    """Reads the caller of the activity that runs, as the server names it."""
    info = activity.info()
    return ActivityCaller(info.workflow_type or "", info.workflow_id or "", info.activity_type, info.activity_id)


def own_problem(caller: ActivityCaller, args: Sequence[Any]) -> str:
    """Returns why this caller may not have one of Signoff's own activities run with these arguments; "" when it may."""
    # Tools and this one check their caller themselves, against the permit, and answer in words that a model can read.
    # What handles events is of no turn, and goes by the store alone.
    if not caller.activity_type.startswith(OWN) or caller.activity_type in (OUTCOME, EVENT):
        return ""
    turns = _turns(args[0], caller) if len(args) == 1 else [None]
    return next(filter(None, (turn_problem(caller, turn, "this activity", "its task") for turn in turns)), "")


def _turns(task: Any, caller: ActivityCaller) -> list[TurnKey | None]:
    """Returns the turns that a task is about; None in place of what is no turn."""
    match task:
        case ModelTask() | GateTask():
            return [TurnKey(task.ctx.tenant, task.ctx.session, task.ctx.turn)]
        case IdentifyTask():
            approval = parse_approval_id(task.decision.approval_id)
            return [None if approval is None or approval.turn.tenant != task.tenant else approval.turn]
        case AnswersTask():
            approval = parse_approval_id(task.approval)
            return [None if approval is None else approval.turn]
        case RecordTask():
            # Its entries name their streams, and those of others are not written: see `journal.hand_over`.
            return [parse_workflow_id(caller.workflow_id)]
    return [None]
