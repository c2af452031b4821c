"""Keeps the end of a local activity out of the time in which a query of its run is being answered.

Why: see `temporal/workflow_runner.py`.

Both run in one process, always: that is what makes an activity local.
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
"""Seconds after an answer was sent in which it reaches the SDK's core."""
PATIENCE: Final = 5.0
"""Seconds after which a local activity ends all the same: an answer that takes as long is stuck."""
LATELY: Final = 5.0
"""Seconds for which a run counts as queried lately after it was while activities of it ran."""
_GLANCE: Final = 0.005


class QueryFence:
    """Tracks which runs are being queried, and which activities ended without their workflow knowing.

    Workflows answer in threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, set[str]] = {}
        """What each run has begun, and of whose end its workflow does not know."""
        self._ended: dict[str, set[str]] = {}
        """What of that has ended."""
        self._queried: set[str] = set()
        self._until: dict[str, float] = {}
        self._lately: dict[str, float] = {}
        """Runs that were queried while activities of theirs ran -> until when they count as queried lately."""
        self.release: Callable[[str], None] = _keep
        """Has the core keep a run no longer, once its queries are answered; it is read anew from its history."""

    def record_begun(self, run_id: str, activity_id: str) -> None:
        """Records that the workflow begins an activity; what ended under its id was of an instance of before."""
        with self._lock:
            self._running.setdefault(run_id, set()).add(activity_id)
            _discard(self._ended, run_id, activity_id)

    def record_known(self, run_id: str, activity_ids: Iterable[str]) -> None:
        """Records that the workflow knows of these activities' ends."""
        with self._lock:
            for each in activity_ids:
                _discard(self._running, run_id, each)
                _discard(self._ended, run_id, each)
            if run_id not in self._running:
                self._until.pop(run_id, None)

    def forget(self, run_id: str) -> None:
        """Records that the worker keeps this run no longer."""
        with self._lock:
            self._running.pop(run_id, None)
            self._ended.pop(run_id, None)
            self._until.pop(run_id, None)
            self._queried.discard(run_id)

    def record_query(self, run_id: str) -> None:
        """Records that the core queries a run within a task: from here on no activity of it ends before the answer."""
        with self._lock:
            # Those that it begins later end when they do: an answer must not cost a decision after it a moment's rest.
            if run_id in self._running:
                self._until[run_id] = time.monotonic() + PATIENCE
                self._queried.add(run_id)

    def end_answer(self, run_id: str) -> bool:
        """Ends the answer to a query, if there was one; a moment later activities may end.

        Called before anything is sent. Returns whether an activity has ended of which the workflow does not know: then
        the answer, which would end their task, must not be sent.

        Of a run that was queried lately no activity ends either in the moment after anything was sent: just then the
        core asks the next query, and an end that is on its way to it would fail one task after the other.
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
        """Records that an activity ran out of time: the core has ended it, whoever is answered meanwhile."""
        with self._lock:
            self._end(run_id, activity_id)

    async def end(self, run_id: str, activity_id: str, *, done: bool) -> None:
        """Waits until no query of this run is being answered; then a local activity of it may end, for good if it is
        `done`.
        """
        late = time.monotonic() + PATIENCE
        while True:
            with self._lock:
                if time.monotonic() >= min(self._until.get(run_id, 0.0), late):
                    # In one step with the look at the time: an answer that is sent now has to find it here.
                    if done:
                        self._end(run_id, activity_id)
                    return
            await asyncio.sleep(_GLANCE)

    def _end(self, run_id: str, activity_id: str) -> None:
        if activity_id in self._running.get(run_id, ()):
            self._ended.setdefault(run_id, set()).add(activity_id)


def _keep(run_id: str) -> None:
    """Does nothing: histories are read without a worker."""


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
        """See `Interceptor`."""
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
    """Returns whether the SDK's core tries an activity that failed with `error` no more."""
    policy = info.retry_policy or RetryPolicy()
    kind = type(error).__name__
    if isinstance(error, ApplicationError):
        if error.non_retryable:
            return True
        kind = error.type or kind
    # No number, or 0, is no end to the tries.
    return kind in (policy.non_retryable_error_types or ()) or 0 < policy.maximum_attempts <= info.attempt
