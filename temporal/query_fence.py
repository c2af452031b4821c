"""Keeps the end of a local activity out of the time in which a query of its run is being answered.

Why: see `temporal/workflow_runner.py`.

Both run in one process, always: that is what makes an activity local.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, Final

from temporalio import activity
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

REST: Final = 0.05
"""Seconds after an answer was sent in which it reaches the SDK's core."""
PATIENCE: Final = 5.0
"""Seconds after which a local activity ends all the same: an answer that takes as long is stuck."""
WAIT: Final = 3.0
"""Seconds that an answer waits for the ends that are on their way; a workflow that takes longer is broken off."""
LATELY: Final = 5.0
"""Seconds for which a run counts as queried within its tasks after it was."""
_GLANCE: Final = 0.005
_ENDING: Final[ContextVar[tuple[str, str] | None]] = ContextVar("ending", default=None)
"""Run and id of the local activity whose end is on its way; each runs in a task of its own."""


class QueryFence:
    """Tracks which runs are being queried, and which activities ended without their workflow knowing.

    Workflows answer in threads.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._until: dict[str, float] = {}
        self._looking: set[str] = set()
        self._met: dict[str, float] = {}
        """Runs that were queried while activities of theirs ran -> until when they count as queried lately."""
        self._ending: dict[str, set[str]] = {}
        """What has ended here, and of which the core may not know yet."""
        self._ended: dict[str, set[str]] = {}
        self.release: Callable[[str], None] = _keep
        """Has the core keep a run no longer, once its queries are answered; it is read anew from its history."""

    def record_query(self, run_id: str) -> None:
        """Records that the core queries a run within a task: from here on no activity of it ends before the answer."""
        with self._changed:
            self._until[run_id] = time.monotonic() + PATIENCE
            self._looking.add(run_id)

    def dismiss_query(self, run_id: str) -> None:
        """Records that a run that is queried has begun no activity: those that it begins later end when they do."""
        with self._changed:
            self._until.pop(run_id, None)
            self._looking.discard(run_id)

    def begin_answer(self, run_id: str) -> frozenset[str]:
        """Begins the answer to a query about a run: no activity of it ends meanwhile.

        Returns those that had ended before, of which the workflow does not know.

        Raises `TimeoutError` where that cannot be known.
        """
        self.record_query(run_id)
        with self._changed:
            now = time.monotonic()
            self._met = {each: until for each, until in self._met.items() if until > now} | {run_id: now + LATELY}
            if not self._changed.wait_for(lambda: run_id not in self._ending, WAIT):
                raise TimeoutError("a local activity of this run ends, and the SDK's core does not take it")
            return frozenset(self._ended.get(run_id, ()))

    def end_answer(self, run_id: str) -> None:
        """Ends the answer to a query, if there was one; a moment later activities may end.

        Of a run that was queried lately no activity ends either in the moment after anything was answered: just then
        the core asks the next query, and an end that is on its way to it would fail one task after the other.
        """
        with self._changed:
            now = time.monotonic()
            if run_id in self._looking or self._met.get(run_id, 0.0) > now:
                self._looking.discard(run_id)
                self._until[run_id] = now + REST

    def record_known(self, run_id: str, activity_ids: Iterable[str]) -> None:
        """Records that the workflow knows of these activities' ends."""
        with self._changed:
            for each in activity_ids:
                _discard(self._ending, run_id, each)
                _discard(self._ended, run_id, each)
            if run_id not in self._ended and run_id not in self._looking:
                self._until.pop(run_id, None)
            self._changed.notify_all()

    def forget(self, run_id: str) -> None:
        """Records that the worker keeps this run no longer."""
        with self._changed:
            self._ending.pop(run_id, None)
            self._ended.pop(run_id, None)
            self._until.pop(run_id, None)
            self._looking.discard(run_id)
            self._changed.notify_all()

    async def end(self, run_id: str, activity_id: str, *, done: bool) -> None:
        """Waits until no query of this run is being answered; then a local activity of it may end, for good if it is
        `done`.
        """
        late = time.monotonic() + PATIENCE
        while True:
            with self._changed:
                if time.monotonic() >= min(self._until.get(run_id, 0.0), late):
                    # In one step with the look at the time: a query that begins now has to find it here.
                    if done:
                        self._ending.setdefault(run_id, set()).add(activity_id)
                        _ENDING.set((run_id, activity_id))
                    return
            await asyncio.sleep(_GLANCE)

    def record_sent(self) -> None:
        """Records that the core was told which activities ended in this task."""
        ending = _ENDING.get()
        if ending is None:
            return
        run_id, activity_id = ending
        with self._changed:
            # Unless the workflow has heard of it by now.
            if _discard(self._ending, run_id, activity_id):
                self._ended.setdefault(run_id, set()).add(activity_id)
            self._changed.notify_all()


def _keep(run_id: str) -> None:
    """Does nothing: histories are read without a worker."""


def _discard(runs: dict[str, set[str]], run_id: str, activity_id: str) -> bool:
    if activity_id not in runs.get(run_id, ()):
        return False
    runs[run_id].discard(activity_id)
    if not runs[run_id]:
        del runs[run_id]
    return True


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
        except BaseException as error:
            await self._fence.end(info.workflow_run_id, info.activity_id, done=is_final(error, info))
            raise
        await self._fence.end(info.workflow_run_id, info.activity_id, done=True)
        return result


def is_final(error: BaseException, info: activity.Info) -> bool:
    """Returns whether the SDK's core tries an activity that failed with `error` no more."""
    if not isinstance(error, Exception):
        return True
    policy = info.retry_policy or RetryPolicy()
    kind = type(error).__name__
    if isinstance(error, ApplicationError):
        if error.non_retryable:
            return True
        kind = error.type or kind
    # No number, or 0, is no end to the tries.
    return kind in (policy.non_retryable_error_types or ()) or 0 < policy.maximum_attempts <= info.attempt
