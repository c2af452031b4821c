"""The tries of a model's answer that failed while a turn waits for it, as the server counts them."""

from datetime import UTC
from typing import Final

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import WorkflowExecutionDescription

from signoff.contracts import names
from signoff.contracts.turn import ModelRetry
from signoff.formats.nearest_name import cut_text

_OURS: Final = ("ModelUnavailable", "StoreUnavailable")
_ERROR_CHARS: Final = 200


def read_model_retry(described: WorkflowExecutionDescription) -> ModelRetry | None:
    """Reads from a workflow's description whether its model is asked again; None at a first try.

    Only words that Signoff's own model activity fails with are repeated: what else stands in a failure is Temporal's.
    """
    for pending in described.raw_description.pending_activities:
        if pending.activity_type.name != names.MODEL or pending.attempt < 2:
            continue
        failure = pending.last_failure
        ours = failure.application_failure_info.type in _OURS
        waits = pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
        at = pending.next_attempt_schedule_time if waits and pending.HasField("next_attempt_schedule_time") else None
        return ModelRetry(
            attempt=pending.attempt,
            error=cut_text(failure.message, _ERROR_CHARS) if ours else "the worker that asked it was lost",
            next_at=None if at is None else at.ToDatetime(UTC),
        )
    return None
