"""The tries of a model's answer that failed while a turn waits for it, as the server counts them."""

from datetime import UTC
from typing import Final

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import WorkflowExecutionDescription
from temporalio.exceptions import ApplicationError

from signoff.contracts import names
from signoff.contracts.turn import ModelRetry
from signoff.formats.nearest_name import cut_text

_OURS: Final = ("ModelUnavailable", "StoreUnavailable")
_ERROR_CHARS: Final = 200


async def read_model_retry(described: WorkflowExecutionDescription) -> ModelRetry | None:
    """Reads from a workflow's description whether its model is asked again; None at a first try.

    Only words that Signoff's own model activity fails with are repeated: what else stands in a failure is Temporal's.
    """
    for pending in described.raw_description.pending_activities:
        if pending.activity_type.name != names.MODEL or pending.attempt < 2:
            continue
        # The SDK leaves it as the server has it: its words may be encrypted.
        error = await described.data_converter.decode_failure(pending.last_failure)
        words = error.message if isinstance(error, ApplicationError) and error.type in _OURS else ""
        waits = pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
        at = pending.next_attempt_schedule_time if waits and pending.HasField("next_attempt_schedule_time") else None
        return ModelRetry(
            attempt=pending.attempt,
            error=cut_text(words, _ERROR_CHARS) or "the worker that asked it was lost",
            next_at=None if at is None else at.ToDatetime(UTC),
        )
    return None
