"""Makes the options of activities: timeouts and retries."""

from datetime import timedelta
from typing import Any, Final

from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType

from signoff.contracts.activity_messages import RunOptions
from signoff.workflows.temporal_metadata import summary

_HEARTBEAT: Final = timedelta(seconds=20)
_PATIENT: Final = RetryPolicy(maximum_interval=timedelta(minutes=1))
_NEVER_AGAIN: Final = ("InDoubt", "Refused")
# A worker lost in the middle of a side effect must not be replaced by a second try; which of the two
# timeouts the server reports depends on which runs out first.
_LOST_WORKER: Final = ("TemporalTimeout:Heartbeat", "TemporalTimeout:StartToClose")

# What a provider has no answer for in ten minutes ends the turn, with what it has done; it is not tried for ever.
MODEL: Final[dict[str, Any]] = {
    "start_to_close_timeout": timedelta(minutes=3),
    "schedule_to_close_timeout": timedelta(minutes=10),
    "heartbeat_timeout": _HEARTBEAT,
    "retry_policy": RetryPolicy(
        maximum_interval=timedelta(minutes=1), non_retryable_error_types=["ConfigError", "ModelRefused"]
    ),
}
# No end to the tries: without a gate decision nothing may run, and a gate that cannot answer must not end the turn.
GATE: Final[dict[str, Any]] = {
    "start_to_close_timeout": timedelta(seconds=30),
    "retry_policy": RetryPolicy(maximum_interval=timedelta(seconds=20)),
}
EDIT: Final[dict[str, Any]] = {
    "schedule_to_close_timeout": timedelta(seconds=20),
    "retry_policy": RetryPolicy(maximum_attempts=3),
}
# Soon given up, as others wait behind it and its author for a receipt; they may answer again.
IDENTIFY: Final[dict[str, Any]] = {
    "schedule_to_close_timeout": timedelta(seconds=8),
    "retry_policy": RetryPolicy(maximum_attempts=2),
}
# Soon given up, as an agent waits for the answer; it asks again with the same id.
USE: Final[dict[str, Any]] = {
    "schedule_to_close_timeout": timedelta(seconds=20),
    "retry_policy": RetryPolicy(maximum_attempts=3, non_retryable_error_types=list(_NEVER_AGAIN)),
}
# As long as that of the gates: nothing is lost by trying again, and without an answer nothing may run.
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
    """Returns the options of a tool's activity.

    `schedule_to_start` is what is left of the grant: too late is a server fact.
    """
    start = timedelta(seconds=options.start_to_close)
    wait = timedelta(seconds=options.grant_ttl)
    # By the kind of failure and not by a number of attempts: with one an approved call would be lost that comes to a
    # worker which is not deployed yet, or finds no store.
    fatal = _NEVER_AGAIN if options.idempotent or options.read_only else (*_NEVER_AGAIN, *_LOST_WORKER)
    given: dict[str, Any] = {
        "start_to_close_timeout": start,
        "schedule_to_start_timeout": wait,
        "schedule_to_close_timeout": wait + start,
        "heartbeat_timeout": _HEARTBEAT,
        # The SDK's own does not wait for the tool, and nobody would know whether its effect had happened.
        "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        "retry_policy": RetryPolicy(maximum_interval=timedelta(minutes=1), non_retryable_error_types=list(fatal)),
        "summary": summary(options.summary) or None,
    }
    if options.task_queue:
        given["task_queue"] = options.task_queue
    return given


def local_tool(options: RunOptions) -> dict[str, Any]:
    """Returns the options of a read-only bypass tool that nobody has to approve."""
    return {
        "start_to_close_timeout": timedelta(seconds=options.start_to_close),
        "retry_policy": RetryPolicy(maximum_attempts=options.attempts),
        "summary": summary(options.summary) or None,
    }
