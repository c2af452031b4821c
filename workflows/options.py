"""How activities are scheduled: timeouts and retries, as contracts.md gives them."""

from datetime import timedelta
from typing import Any, Final

from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType

from signoff.contracts.steps import RunOptions
from signoff.workflows.shown import summary

_HEARTBEAT: Final = timedelta(seconds=20)
_PATIENT: Final = RetryPolicy(maximum_interval=timedelta(minutes=1))
_NEVER_AGAIN: Final = ("InDoubt", "Refused")
# A worker lost in the middle of a side effect must not be replaced by a second try; which of the two
# timeouts the server reports depends on which runs out first.
_LOST_WORKER: Final = ("TemporalTimeout:Heartbeat", "TemporalTimeout:StartToClose")

MODEL: Final[dict[str, Any]] = {
    "start_to_close_timeout": timedelta(minutes=3),
    "schedule_to_close_timeout": timedelta(minutes=10),
    "heartbeat_timeout": _HEARTBEAT,
    "retry_policy": RetryPolicy(
        maximum_interval=timedelta(minutes=1), non_retryable_error_types=["ConfigError", "ModelRefused"]
    ),
}
GATE: Final[dict[str, Any]] = {
    "start_to_close_timeout": timedelta(seconds=30),
    "retry_policy": RetryPolicy(maximum_interval=timedelta(seconds=20)),
}
EDIT: Final[dict[str, Any]] = {
    "schedule_to_close_timeout": timedelta(seconds=20),
    "retry_policy": RetryPolicy(maximum_attempts=3),
}
IDENTIFY: Final[dict[str, Any]] = {
    "schedule_to_close_timeout": timedelta(seconds=8),
    "retry_policy": RetryPolicy(maximum_attempts=2),
}
# Given up within 12 s, by the number of tries: a local activity that fails at once is tried again beyond any
# schedule-to-close timeout.
DELIVER: Final[dict[str, Any]] = {
    "start_to_close_timeout": timedelta(seconds=3),
    "retry_policy": RetryPolicy(maximum_attempts=3),
}
RECORD: Final[dict[str, Any]] = {
    "start_to_close_timeout": timedelta(seconds=30),
    "retry_policy": _PATIENT,
}
OUTCOME: Final[dict[str, Any]] = {
    "start_to_close_timeout": timedelta(seconds=30),
    "retry_policy": _PATIENT,
}


def tool(options: RunOptions) -> dict[str, Any]:
    """Options of a tool's activity. `schedule_to_start` is what is left of the grant: too late is a server fact."""
    start = timedelta(seconds=options.start_to_close)
    wait = timedelta(seconds=options.grant_ttl)
    fatal = _NEVER_AGAIN if options.idempotent or options.read_only else (*_NEVER_AGAIN, *_LOST_WORKER)
    given: dict[str, Any] = {
        "start_to_close_timeout": start,
        "schedule_to_start_timeout": wait,
        "schedule_to_close_timeout": wait + start,
        "heartbeat_timeout": _HEARTBEAT,
        "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        "retry_policy": RetryPolicy(maximum_interval=timedelta(minutes=1), non_retryable_error_types=list(fatal)),
        "summary": summary(options.summary) or None,
    }
    if options.task_queue:
        given["task_queue"] = options.task_queue
    return given


def local_tool(options: RunOptions) -> dict[str, Any]:
    """Options of a read-only bypass tool that nobody has to approve."""
    return {
        "start_to_close_timeout": timedelta(seconds=options.start_to_close),
        "retry_policy": RetryPolicy(maximum_attempts=options.attempts),
        "summary": summary(options.summary) or None,
    }
