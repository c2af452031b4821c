"""Decides what a workflow asks about a call, and what follows from an answer: alike at every replay, without I/O."""

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
    """Says what a worker's workflows ask about, and how."""

    readers: Mapping[str, CallReader]
    signal: str
    look_up: timedelta
    """After what time a workflow that was told nothing looks for itself; twice as long each time after."""
    patience: timedelta
    """For how long a gateway that gives no answer is tried again."""
    task_queue: str | None
    """Where the gate's own activities run; the workflow's own queue when None."""
    user: Callable[[], str] | None


class CallPlace(NamedTuple):
    """Where a call stands: the workflow, the run as it was begun, and which of the run's calls it is."""

    workflow: str
    run: str
    number: int


def make_question(plan: GatePlan, place: CallPlace, call: ToolCall, own: Mapping[str, Any]) -> Question:
    """Returns the question about a call; `own` is what a workflow's own code says beside it."""
    user = own.get("user") or ("" if plan.user is None else plan.user())
    # The run as it was begun: the same after a reset, so that what has run is not run again by that.
    key = ":".join(map(str, place))
    return Question(call.tool, dict(call.args), key, place.workflow, plan.signal, str(own.get("says", "")), user)


def next_step(answer: Answer) -> NextStep:
    """Returns what a workflow does after an answer: all that is no permit, and no result, means no."""
    if answer.state == "waiting":
        return "wait"
    if answer.state == "permitted":
        return "start"
    return "return" if (answer.state, answer.code) == ("ended", "ok") else "refuse"


def next_look(looks: timedelta) -> timedelta:
    """Returns after what time a workflow looks again that was told nothing for `looks`."""
    return min(2 * looks, _LONGEST_LOOK)


def check_failure(error: ActivityError, answer: Answer) -> None:
    """Returns where people are asked anew. Raises what a gated activity failed with, as the workflow is told it."""
    cause = error.cause
    if not isinstance(cause, ApplicationError) or cause.type not in (UNREACHABLE, WAITING):
        raise error
    if cause.type == UNREACHABLE:
        raise not_run(Answer("unreachable", answer.id, cause.message)) from None


def is_suspended(error: ActivityError) -> bool:
    """Return whether an activity failed with a framework's signal, after which it is started again."""
    return isinstance(error.cause, ApplicationError) and error.cause.type in FAILURE_TYPES


def unreachable_answer(error: ActivityError) -> Answer:
    """Returns the answer of a gateway that gave none. Raises `error` where the question was cancelled."""
    if is_cancelled_exception(error):
        raise error
    reason = error.cause.message if isinstance(error.cause, ApplicationError) else "no worker asks it"
    return Answer("unreachable", text=f"Not run: Signoff gave no answer ({reason}).")


def activity_error(activity: str, activity_id: str, cause: ApplicationError | CancelledError) -> ActivityError:
    """Returns the error by which an activity is known to have failed, as it would be where it had been started."""
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
