"""Activity `signoff.event`: delivers an event to the handler of a subscription."""

import asyncio
import logging
from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from signoff.activities.heartbeat import send_heartbeats
from signoff.activities.worker_deps import WorkerDeps
from signoff.audit.event_deliveries import EventDeliveries, is_for
from signoff.contracts import names
from signoff.contracts.activity_messages import EventTask
from signoff.contracts.audit import CloudEvent
from signoff.contracts.ids import event_workflow_id
from signoff.registry.manifest.subscription_sections import EventHandler
from signoff.telemetry.stack_trace import trace_without_words

TIMEOUT: Final = "timeout"
_log = logging.getLogger(__name__)


class EventActivity:
    """The store, not the caller, determines the event for a handler."""

    def __init__(self, deps: WorkerDeps) -> None:
        self._deps = deps
        self._queue = EventDeliveries(deps.store)

    @activity.defn(name=names.EVENT)
    async def event(self, task: EventTask) -> None:
        """Run the handler unless the event was delivered.

        A failure is final, with the type of the handler's exception.
        """
        info = activity.info()
        own_workflow = (names.HANDLER_RUN, event_workflow_id(self._deps.store.id, task.delivery))
        if (info.workflow_type, info.workflow_id) != own_workflow:
            raise _failure("Refused", "this activity is of a workflow that handles an event")
        delivery = await self._queue.read(task.delivery)
        if delivery is None:
            return
        subscription = self._deps.catalog.subscriptions.get(delivery.subscription)
        if subscription is None or subscription.handler is None:
            raise _failure("NotDeployed", f"this worker has no handler of subscription `{delivery.subscription}`")
        if delivery.event.tenant != subscription.tenant or not is_for(subscription, delivery.event):
            raise _failure("NotWanted", f"subscription `{subscription.name}` is not for this event")
        async with send_heartbeats():
            await _run(subscription.name, subscription.handler, delivery.event, subscription.timeout)


async def _run(name: str, handler: EventHandler, event: CloudEvent, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds) as limit:
            await handler(event)
    except asyncio.CancelledError:
        if activity.is_cancelled() or activity.is_worker_shutdown():
            raise
        # The handler cancelled itself. Unconverted, this would look like the activity's own cancellation.
        raise _failure("CancelledError", f"the handler of `{name}` cancelled itself") from None
    except (SystemExit, KeyboardInterrupt) as error:
        # Unconverted, this would stop the worker with all its work, and then the next worker that retries.
        kind = type(error).__name__
        raise _failure(kind, f"the handler of `{name}` tried to end the process ({kind})") from None
    except Exception as error:
        if limit.expired():
            raise _failure(TIMEOUT, f"the handler of `{name}` took longer than {seconds:g} s") from None
        # Omit the message: it may quote the handler's input.
        _log.warning("the handler of subscription `%s` failed: %s", name, trace_without_words(error))
        raise _failure(type(error).__name__, f"the handler of `{name}` failed") from None


def _failure(kind: str, message: str) -> ApplicationError:
    return ApplicationError(message, type=kind, non_retryable=True)
