"""Runs an event handler on a worker."""

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
"""The result of a handler that did not start or end during the wait."""
_BEGIN_WITHIN: Final = timedelta(minutes=10)


async def run_event_handler(client: Client, task_queue: str, store: str, task: EventTask, patience: float) -> str:
    """Return "" once a handler accepted an event, or the failure, after `patience` seconds at the latest.

    `store` is the id of the event's store. Parallel callers of any process wait for the same run. After a failure, a
    new one begins. Raises `ServerUnavailable`.
    """
    try:
        handle = await client.start_workflow(
            names.HANDLER_RUN,
            task,
            id=event_workflow_id(store, task.delivery),
            task_queue=task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            # A run without a worker ends alone, and the next attempt starts a new one.
            execution_timeout=timedelta(seconds=task.seconds) + _BEGIN_WITHIN,
        )
        async with asyncio.timeout(patience):
            await handle.result()
    except WorkflowAlreadyStartedError:
        # The event was accepted, but the waiting process ended before it could record that.
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
