"""Delays the end of a local activity while a query of its run is being answered. See `temporal/workflow_runner.py`.

Both always run in one process, because the activity is local.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from temporalio import activity
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

REST: Final = 0.05
"""Seconds for a sent answer to reach the SDK's core."""
PATIENCE: Final = 5.0
"""Seconds after which a local activity ends in any case: a longer answer is stuck."""
LATELY: Final = 5.0
"""Seconds for which a run counts as recently queried, after a query during its activities."""
_GLANCE: Final = 0.005


class QueryFence:
    """Tracks runs with pending queries, and ended activities that their workflows do not know of.

    Workflows answer in threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, set[str]] = {}
        """Maps each run to its activities whose end its workflow does not know."""
        self._ended: dict[str, set[str]] = {}
        """Maps each run to its ended ones among these."""
        self._queried: set[str] = set()
        self._until: dict[str, float] = {}
        self._lately: dict[str, float] = {}
        """Maps runs queried during their activities to the end of their recently queried time."""
        self.release: Callable[[str], None] = _keep
        """Evicts a run from the core once its queries are answered. It is replayed from its history."""

    def record_begun(self, run_id: str, activity_id: str) -> None:
        """An earlier end of this id belongs to an earlier instance."""
        with self._lock:
            self._running.setdefault(run_id, set()).add(activity_id)
            _discard(self._ended, run_id, activity_id)

    def record_known(self, run_id: str, activity_ids: Iterable[str]) -> None:
        """Record that the workflow knows of these activities' ends."""
        with self._lock:
            for each in activity_ids:
                _discard(self._running, run_id, each)
                _discard(self._ended, run_id, each)
            if run_id not in self._running:
                self._until.pop(run_id, None)

    def forget(self, run_id: str) -> None:
        with self._lock:
            self._running.pop(run_id, None)
            self._ended.pop(run_id, None)
            self._until.pop(run_id, None)
            self._queried.discard(run_id)

    def record_query(self, run_id: str) -> None:
        """Until the answer, no activity of the run ends."""
        with self._lock:
            # Activities started later end at any time: an answer must not delay a decision after it.
            if run_id in self._running:
                self._until[run_id] = time.monotonic() + PATIENCE
                self._queried.add(run_id)

    def end_answer(self, run_id: str) -> bool:
        """End the answer to a query, if any. Activities may end a moment later.

        Call this before sending. Returns whether an activity has ended without the workflow's knowledge. The answer
        would end their task, so it must not be sent. For a recently queried run, activities also wait for a moment
        after any message: the core asks its next query just then, and an end on its way to the core would fail one task
        after another.
        """
        with self._lock:
            now = time.monotonic()
            queried = run_id in self._queried
            if queried:
                self._queried.discard(run_id)
                self._lately = {each: until for each, until in self._lately.items() if until > now}
                self._lately[run_id] = now + LATELY
            if self._lately.get(run_id, 0.0) > now:
                self._until[run_id] = now + REST
            return queried and run_id in self._ended

    def record_timeout(self, run_id: str, activity_id: str) -> None:
        """Record that an activity timed out: the core has ended it, even during an answer."""
        with self._lock:
            self._end(run_id, activity_id)

    async def end(self, run_id: str, activity_id: str, *, done: bool) -> None:
        """Wait until no query of this run is being answered. Then a local activity may end, finally if `done`."""
        late = time.monotonic() + PATIENCE
        while True:
            with self._lock:
                if time.monotonic() >= min(self._until.get(run_id, 0.0), late):
                    # Check and record in one step: an answer sent now must find the end here.
                    if done:
                        self._end(run_id, activity_id)
                    return
            await asyncio.sleep(_GLANCE)

    def _end(self, run_id: str, activity_id: str) -> None:
        if activity_id in self._running.get(run_id, ()):
            self._ended.setdefault(run_id, set()).add(activity_id)


def _keep(run_id: str) -> None:
    """Do nothing, for reading histories without a worker."""


def _discard(runs: dict[str, set[str]], run_id: str, activity_id: str) -> None:
    kept = runs.get(run_id, set()) - {activity_id}
    if kept:
        runs[run_id] = kept
    else:
        runs.pop(run_id, None)


class QueryFenceInterceptor(Interceptor):
    """Makes every local activity of a worker end outside queries."""

    def __init__(self, fence: QueryFence) -> None:
        self._fence = fence

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Unseen(next, self._fence)


class _Unseen(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, fence: QueryFence) -> None:
        super().__init__(next)
        self._fence = fence

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        if not info.is_local or info.workflow_run_id is None:
            return await super().execute_activity(input)
        try:
            result = await super().execute_activity(input)
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if details is not None and details.timed_out:
                self._fence.record_timeout(info.workflow_run_id, info.activity_id)
            raise
        except Exception as error:
            await self._fence.end(info.workflow_run_id, info.activity_id, done=is_final(error, info))
            raise
        await self._fence.end(info.workflow_run_id, info.activity_id, done=True)
        return result


def is_final(error: Exception, info: activity.Info) -> bool:
    """Return whether the SDK's core never retries an activity that failed with `error`."""
    policy = info.retry_policy or RetryPolicy()
    kind = type(error).__name__
    if isinstance(error, ApplicationError):
        if error.non_retryable:
            return True
        kind = error.type or kind
    # No limit, or 0, means unlimited attempts.
    return kind in (policy.non_retryable_error_types or ()) or 0 < policy.maximum_attempts <= info.attempt
