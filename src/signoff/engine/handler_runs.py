"""Has a worker give an event to a handler, and tells what that came to."""

import asyncio
import builtins
from datetime import timedelta
from typing import Final

from temporalio.client import Client, WorkflowFailureError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, WorkflowAlreadyStartedError
from temporalio.service import RPCError

from signoff.contracts import names
from signoff.contracts.activity_messages import EventTask
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.ids import event_workflow_id

UNFINISHED: Final = "unfinished"
"""What is said of a handler that no worker has begun, or none has finished, while it was waited for."""
_BEGIN_WITHIN: Final = timedelta(minutes=10)


async def run_event_handler(client: Client, task_queue: str, store: str, task: EventTask, patience: float) -> str:
    """Returns "" once a handler took an event, else why it did not, after `patience` seconds at the latest.

    `store` is the id of the store in which it is owed. Whoever asks again meanwhile, also from elsewhere, waits for the
    same run; after a failure another one begins. Raises `ServerUnavailable`.
    """
    try:
        handle = await client.start_workflow(
            names.HANDLER_RUN,
            task,
            id=event_workflow_id(store, task.delivery),
            task_queue=task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            # One that no worker takes ends by itself, and is begun anew when it is tried again.
            execution_timeout=timedelta(seconds=task.seconds) + _BEGIN_WITHIN,
        )
        async with asyncio.timeout(patience):
            await handle.result()
    except WorkflowAlreadyStartedError:
        # It was taken, and whoever waited for that did not live to say so.
        return ""
    except WorkflowFailureError as error:
        return _code(error)
    except builtins.TimeoutError:
        return UNFINISHED
    except RPCError as error:
        raise ServerUnavailable(f"no handler can be given an event: {error.message}") from None
    return ""


def _code(error: WorkflowFailureError) -> str:
    cause = error.cause.cause if isinstance(error.cause, ActivityError) else error.cause
    if isinstance(cause, ApplicationError):
        return cause.type or "failed"
    return "timeout" if isinstance(cause, TimeoutError) else "cancelled"
