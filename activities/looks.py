"""Keeps the end of a local activity out of the moment in which a query of its run is being answered; see `runner.py`.

Both run in one process, always: that is what makes an activity local.
"""

import asyncio
import threading
import time
from collections.abc import Iterable
from typing import Any, Final

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

REST: Final = 0.05
"""Seconds after an answer in which it reaches the SDK's core."""
PATIENCE: Final = 5.0
"""Seconds after which a local activity ends all the same: an answer that takes as long is stuck."""
_GLANCE: Final = 0.005


class Looks:
    """Who is looked at, and what has ended of which its workflow has not heard. Workflows answer in threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}
        self._ended: dict[str, set[str]] = {}

    def look(self, run_id: str) -> frozenset[str]:
        """Begin to answer a query about a run: nothing of it ends meanwhile. Returns what had ended before."""
        with self._lock:
            self._until[run_id] = time.monotonic() + PATIENCE
            return frozenset(self._ended.get(run_id, ()))

    def away(self, run_id: str) -> None:
        """The query is answered; a moment later activities may end."""
        with self._lock:
            self._until[run_id] = time.monotonic() + REST

    def heard(self, run_id: str, activity_ids: Iterable[str]) -> None:
        """The workflow knows of these."""
        with self._lock:
            left = self._ended.get(run_id, set()).difference(activity_ids)
            if left:
                self._ended[run_id] = left
            else:
                self._ended.pop(run_id, None)
                self._until.pop(run_id, None)

    def forget(self, run_id: str) -> None:
        """The worker keeps this run no longer."""
        with self._lock:
            self._ended.pop(run_id, None)
            self._until.pop(run_id, None)

    async def end(self, run_id: str, activity_id: str, *, done: bool) -> None:
        """Return once nobody looks at this run: now a local activity of it may end, for good if it is `done`."""
        late = time.monotonic() + PATIENCE
        while True:
            with self._lock:
                if time.monotonic() >= min(self._until.get(run_id, 0.0), late):
                    # In one step with the look at the time: a query that begins now has to find it here.
                    if done:
                        self._ended.setdefault(run_id, set()).add(activity_id)
                    return
            await asyncio.sleep(_GLANCE)


class LooksInterceptor(Interceptor):
    """Has every local activity of a worker end unseen."""

    def __init__(self, looks: Looks) -> None:
        self._looks = looks

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """See `Interceptor`."""
        return _Unseen(next, self._looks)


class _Unseen(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, looks: Looks) -> None:
        super().__init__(next)
        self._looks = looks

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        done = False
        try:
            result = await super().execute_activity(input)
            # Not set for one that fails: it may be tried again, so it has not ended for good.
            done = True
            return result
        finally:
            info = activity.info()
            if info.is_local and info.workflow_run_id is not None:
                await self._looks.end(info.workflow_run_id, info.activity_id, done=done)
