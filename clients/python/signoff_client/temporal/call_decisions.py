"""Decides a workflow's question about a call and its next step. Deterministic in replay, without I/O."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, is_cancelled_exception

from signoff_client.control_flow import FAILURE_TYPES
from signoff_client.temporal.gated_activity import CallReader, ToolCall
from signoff_client.temporal.messages import UNREACHABLE, WAITING, Answer, Question, not_run

_LONGEST_LOOK: Final = timedelta(days=1)

NextStep: TypeAlias = Literal["wait", "start", "return", "refuse"]


@dataclass(frozen=True)
class GatePlan:
    """The gated activities of a worker's workflows, and the settings of the gate."""

    readers: Mapping[str, CallReader]
    signal: str
    look_up: timedelta
    """Delay after which a workflow without a signal looks itself. It doubles each time."""
    patience: timedelta
    """Time for which a gateway without an answer is retried."""
    task_queue: str | None
    """The queue of the gate's own activities. `None` means the workflow's own."""
    user: Callable[[], str] | None


class CallPlace(NamedTuple):
    """The position of a call: the workflow, its original run, and the call's number in that run."""

    workflow: str
    run: str
    number: int


def make_question(plan: GatePlan, place: CallPlace, call: ToolCall, own: Mapping[str, Any]) -> Question:
    """Return the question about a call. `own` holds the user and remark of a workflow's own code."""
    user = own.get("user") or ("" if plan.user is None else plan.user())
    # The original run stays the same after a reset, so a reset does not repeat a call.
    key = ":".join(map(str, place))
    return Question(call.tool, dict(call.args), key, place.workflow, plan.signal, str(own.get("says", "")), user)


def next_step(answer: Answer) -> NextStep:
    """Refuse without a permit or a result."""
    if answer.state == "waiting":
        return "wait"
    if answer.state == "permitted":
        return "start"
    return "return" if (answer.state, answer.code) == ("ended", "ok") else "refuse"


def next_look(looks: timedelta) -> timedelta:
    return min(2 * looks, _LONGEST_LOOK)


def check_failure(error: ActivityError, answer: Answer) -> None:
    """Return if approvers are asked again. Otherwise raise a gated activity's failure as the workflow sees it."""
    cause = error.cause
    if not isinstance(cause, ApplicationError) or cause.type not in (UNREACHABLE, WAITING):
        raise error
    if cause.type == UNREACHABLE:
        raise not_run(Answer("unreachable", answer.id, cause.message)) from None


def is_suspended(error: ActivityError) -> bool:
    return isinstance(error.cause, ApplicationError) and error.cause.type in FAILURE_TYPES


def unreachable_answer(error: ActivityError) -> Answer:
    """Return the answer for an unreachable gateway. Raises `error` if the question was cancelled."""
    if is_cancelled_exception(error):
        raise error
    reason = error.cause.message if isinstance(error.cause, ApplicationError) else "no worker runs the question"
    return Answer("unreachable", text=f"Not run: Signoff gave no answer ({reason}).")


def activity_error(activity: str, activity_id: str, cause: ApplicationError | CancelledError) -> ActivityError:
    """The activity was never started, but its error has the form of a started activity's error."""
    error = ActivityError(
        cause.message,
        scheduled_event_id=0,
        started_event_id=0,
        identity="",
        activity_type=activity,
        activity_id=activity_id,
        retry_state=None,
    )
    error.__cause__ = cause
    return error
