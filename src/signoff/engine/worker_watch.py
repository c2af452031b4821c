"""Detects whether a worker serves a task queue. Without one, turns wait and approved calls do not run."""

import asyncio
import time
from datetime import timedelta
from typing import Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from signoff.contracts.clock import Clock, system_clock

_RECENT: Final = timedelta(minutes=2)
"""A worker polls at least once a minute. Temporal lists it for five."""
_AGE_SECONDS: Final = 5.0
_PATIENCE: Final = timedelta(seconds=1)


class WorkerWatch:
    """Looks for workers of one task queue, at most once in five seconds."""

    def __init__(self, client: Client, task_queue: str, *, clock: Clock = system_clock) -> None:
        self._client = client
        self._task_queue = task_queue
        self._clock = clock
        self._lock = asyncio.Lock()
        self._running: bool | None = None
        self._due = 0.0

    async def running(self) -> bool | None:
        """Return `None` if the server does not answer."""
        async with self._lock:
            if time.monotonic() >= self._due:
                self._running = await self._look()
                self._due = time.monotonic() + _AGE_SECONDS
            return self._running

    async def problem(self) -> str:
        """Return a sentence for an operator, or "" if a worker polls or the server does not answer."""
        if await self.running() is not False:
            return ""
        return (
            f"no worker polls the task queue `{self._task_queue}`: turns wait and approved calls do not run until "
            "`signoff worker` runs"
        )

    async def _look(self) -> bool | None:
        request = DescribeTaskQueueRequest(
            namespace=self._client.namespace,
            task_queue=TaskQueue(name=self._task_queue),
            # A worker with only busy activity slots still polls for workflows.
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
        try:
            reply = await self._client.workflow_service.describe_task_queue(request, timeout=_PATIENCE)
        except RPCError:
            return None
        oldest = (self._clock() - _RECENT).timestamp()
        return any(poller.last_access_time.seconds >= oldest for poller in reply.pollers)
