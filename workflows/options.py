"""Builds the options of activities: timeouts and retries."""

from datetime import timedelta
from typing import Any, Final

from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType

from signoff.contracts.activity_messages import RunOptions
from signoff.workflows.temporal_metadata import summary

_HEARTBEAT: Final = timedelta(seconds=20)
_PATIENT: Final = RetryPolicy(maximum_interval=timedelta(minutes=1))
_NEVER_AGAIN: Final = ("InDoubt", "Refused")
# Do not retry if a worker is lost in the middle of a side effect. The server reports the first timeout
# that expires.
_LOST_WORKER: Final = ("TemporalTimeout:Heartbeat", "TemporalTimeout:StartToClose")

# If the provider gives no answer within ten minutes, the turn ends and keeps its results so far.
MODEL: Final[dict[str, Any]] = {
    "start_to_close_timeout": timedelta(minutes=3),
    "schedule_to_close_timeout": timedelta(minutes=10),
    "heartbeat_timeout": _HEARTBEAT,
    "retry_policy": RetryPolicy(
        maximum_interval=timedelta(minutes=1), non_retryable_error_types=["ConfigError", "ModelRefused"]
    ),
}
# Retry without limit: nothing may run without a gate decision, and an unavailable gate must not end the turn.
GATE: Final[dict[str, Any]] = {
    "start_to_close_timeout": timedelta(seconds=30),
    "retry_policy": RetryPolicy(maximum_interval=timedelta(seconds=20)),
}
EDIT: Final[dict[str, Any]] = {
    "schedule_to_close_timeout": timedelta(seconds=20),
    "retry_policy": RetryPolicy(maximum_attempts=3),
}
# Give up early: other decisions queue behind this one, and its author waits for a receipt and can answer again.
TAKE: Final[dict[str, Any]] = {
    "schedule_to_close_timeout": timedelta(seconds=8),
    "retry_policy": RetryPolicy(maximum_attempts=2),
}
# Give up early: an agent waits for the answer and can ask again with the same id.
USE: Final[dict[str, Any]] = {
    "schedule_to_close_timeout": timedelta(seconds=20),
    "retry_policy": RetryPolicy(maximum_attempts=3, non_retryable_error_types=list(_NEVER_AGAIN)),
}
# Retry without limit, like the gates: a retry is harmless, and nothing may run without an answer.
PROPOSE: Final[dict[str, Any]] = {
    "start_to_close_timeout": timedelta(seconds=60),
    "retry_policy": RetryPolicy(maximum_interval=timedelta(seconds=20), non_retryable_error_types=["ConfigError"]),
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
    """Return the options of a tool's activity.

    `schedule_to_start_timeout` is the approval's remaining lifetime, so the server enforces the deadline. Without
    approval, it is the whole `grant_ttl`.
    """
    start = timedelta(seconds=options.start_to_close)
    wait = timedelta(seconds=options.grant_ttl)
    # Limit retries by the kind of failure, not by a number of attempts. With one attempt, an approved call would be
    # lost if its worker is not deployed yet or cannot reach the store.
    fatal = _NEVER_AGAIN if options.idempotent or options.read_only else (*_NEVER_AGAIN, *_LOST_WORKER)
    activity: dict[str, Any] = {
        "start_to_close_timeout": start,
        "schedule_to_start_timeout": wait,
        "schedule_to_close_timeout": wait + start,
        "heartbeat_timeout": _HEARTBEAT,
        # The SDK's default does not wait for the tool, which would leave its outcome unknown.
        "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        "retry_policy": RetryPolicy(maximum_interval=timedelta(minutes=1), non_retryable_error_types=list(fatal)),
        "summary": summary(options.summary) or None,
    }
    if options.task_queue:
        activity["task_queue"] = options.task_queue
    return activity


def local_tool(options: RunOptions) -> dict[str, Any]:
    """Return the options of a read-only bypass tool that needs no approval."""
    return {
        "start_to_close_timeout": timedelta(seconds=options.start_to_close),
        "retry_policy": RetryPolicy(maximum_attempts=options.attempts),
        "summary": summary(options.summary) or None,
    }
