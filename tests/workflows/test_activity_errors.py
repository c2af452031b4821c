"""The SDK raises activity errors differently live and in replay."""

from tables import table
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    FailureError,
    RetryState,
    TimeoutError,
    TimeoutType,
)

from signoff.workflows import outcomes

LATE = TimeoutError("activity ScheduleToClose timeout", type=TimeoutType.SCHEDULE_TO_CLOSE, last_heartbeat_details=[])
REFUSED = ApplicationError("not yours", type="Refused")


def failed(cause: FailureError | None) -> ActivityError:
    error = ActivityError(
        "Local Activity timed out",
        scheduled_event_id=1,
        started_event_id=2,
        identity="w",
        activity_type="pay",
        activity_id="1",
        retry_state=RetryState.TIMEOUT,
    )
    error.__cause__ = cause
    return error


@table(
    ("error", "kind", "text", "cancelled"),
    (failed(REFUSED), "Refused", "not yours", False),
    (REFUSED, "Refused", "not yours", False),
    (ApplicationError("odd"), "", "odd", False),
    (failed(LATE), "", "It ran out of time.", False),
    (LATE, "", "It ran out of time.", False),
    (failed(CancelledError("stopped")), "", "stopped", True),
    (failed(None), "", "Local Activity timed out", False),
    ids=["wrapped", "bare", "of-no-kind", "late", "late-from-history", "cancelled", "of-no-cause"],
)
def test_wrapped_and_bare_activity_errors_read_alike(
    error: FailureError, kind: str, text: str, cancelled: bool
) -> None:
    # A local activity raises its function's error bare. A timeout is wrapped live but bare in replay, with another SDK
    # text.
    assert isinstance(error, outcomes.LOST)
    assert (outcomes.error_type(error), outcomes.error_text(error)) == (kind, text)
    assert outcomes.was_cancelled(error) is cancelled
