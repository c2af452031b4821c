"""Activity `signoff.event`: gives an event that a subscription is owed to the subscription's handler."""

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
    """Runs the handlers of subscriptions. Which event a handler is given the store says, not who asks for it."""

    def __init__(self, deps: WorkerDeps) -> None:
        self._deps = deps
        self._queue = EventDeliveries(deps.store)

    @activity.defn(name=names.EVENT)
    async def event(self, task: EventTask) -> None:
        """Runs the handler, unless nobody is owed this any more. Fails, finally, with the type of what it raised."""
        info = activity.info()
        own = (names.HANDLER_RUN, event_workflow_id(self._deps.store.id, task.delivery))
        if (info.workflow_type, info.workflow_id) != own:
            raise _failure("Refused", "this activity is of a workflow that handles an event")
        owed = await self._queue.read(task.delivery)
        if owed is None:
            return
        to = self._deps.catalog.subscriptions.get(owed.subscription)
        if to is None or to.handler is None:
            raise _failure("NotDeployed", f"this worker has no handler of subscription `{owed.subscription}`")
        if owed.event.tenant != to.tenant or not is_for(to, owed.event):
            raise _failure("NotWanted", f"subscription `{to.name}` is not for this event")
        async with send_heartbeats():
            await _run(to.name, to.handler, owed.event, to.timeout)


async def _run(name: str, handler: EventHandler, event: CloudEvent, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds) as limit:
            await handler(event)
    except asyncio.CancelledError:
        if activity.is_cancelled() or activity.is_worker_shutdown():
            raise
        # It cancelled itself: let through, this would pass for the activity's own cancel.
        raise _failure("CancelledError", f"the handler of `{name}` cancelled itself") from None
    except (SystemExit, KeyboardInterrupt) as error:
        # Let through, it would stop the worker with everything it runs, and then the next one that tries.
        kind = type(error).__name__
        raise _failure(kind, f"the handler of `{name}` tried to end the process ({kind})") from None
    except Exception as error:
        if limit.expired():
            raise _failure(TIMEOUT, f"the handler of `{name}` took longer than {seconds:g} s") from None
        # Its words may show what it was given.
        _log.warning("the handler of subscription `%s` failed: %s", name, trace_without_words(error))
        raise _failure(type(error).__name__, f"the handler of `{name}` failed") from None


def _failure(kind: str, message: str) -> ApplicationError:
    return ApplicationError(message, type=kind, non_retryable=True)
