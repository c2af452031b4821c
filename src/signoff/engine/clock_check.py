"""Measures clocks against this machine's: one signs answers, another enforces deadlines."""

import asyncio
import contextlib
import uuid
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.api.enums.v1 import TaskQueueKind, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, PollWorkflowTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from signoff.contracts.clock import Clock, system_clock
from signoff.contracts.limits import CLOCKS_APART_SECONDS
from signoff.store.store import Store

_QUEUE: Final = "signoff-clock"
_POLL: Final = timedelta(seconds=10)
"""Temporal rejects poll timeouts below two seconds. The caller does not wait this long."""
_LOOKS: Final = 20
_BETWEEN_SECONDS: Final = 0.05


async def store_clock_lead(store: Store, *, clock: Clock = system_clock) -> timedelta:
    """Raises as `Store.check`, which this calls."""
    before = clock()
    store_time = await store.check()
    return store_time - _between(before, clock())


async def server_clock_lead(client: Client, *, clock: Clock = system_clock) -> timedelta | None:
    """Return the lead of the server's clock over this machine's, or `None` if it is unknown.

    No call of Temporal's API returns the time. The server reports the last poll of a queue, so this polls an empty one.
    """
    # A sticky queue has one partition. A normal queue has four, and the server might describe another one. The sticky
    # queue needs a normal queue of another name: its own name would cause a loop.
    queue = TaskQueue(name=f"{_QUEUE}-polled", kind=TaskQueueKind.TASK_QUEUE_KIND_STICKY, normal_name=_QUEUE)
    identity = f"clock-{uuid.uuid4().hex}"
    request = PollWorkflowTaskQueueRequest(namespace=client.namespace, task_queue=queue, identity=identity)
    before = clock()
    poll = asyncio.ensure_future(client.workflow_service.poll_workflow_task_queue(request, timeout=_POLL))
    try:
        server_time = await _polled_at(client, queue, identity)
    except RPCError:
        return None
    finally:
        poll.cancel()
        with contextlib.suppress(asyncio.CancelledError, RPCError):
            await poll
    return None if server_time is None else server_time - _between(before, clock())


def clock_problem(name: str, ahead: timedelta | None) -> str:
    """Return a sentence with the remedy, or "" if the lead is acceptable."""
    if ahead is None or abs(ahead.total_seconds()) <= CLOCKS_APART_SECONDS:
        return ""
    seconds = f"{abs(ahead.total_seconds()):.0f} s"
    if ahead > timedelta(0):
        which, effect = "ahead of", "cards show more time than is left"
    else:
        which, effect = "behind", "answers may count as late before their deadline"
    return f"the clock of {name} is {seconds} {which} this machine's: set both by NTP; until then {effect}"


async def _polled_at(client: Client, queue: TaskQueue, identity: str) -> datetime | None:
    kind = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
    request = DescribeTaskQueueRequest(namespace=client.namespace, task_queue=queue, task_queue_type=kind)
    for _ in range(_LOOKS):
        await asyncio.sleep(_BETWEEN_SECONDS)
        reply = await client.workflow_service.describe_task_queue(request)
        for poller in reply.pollers:
            if poller.identity == identity:
                return poller.last_access_time.ToDatetime(UTC)
    return None


def _between(before: datetime, after: datetime) -> datetime:
    return before + (after - before) / 2
