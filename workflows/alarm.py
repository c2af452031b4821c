"""Waits for a condition or a deadline with as few timers as possible."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial

from temporalio import workflow


class Alarm:
    """Wakes the turn of one external call.

    Timers are never cancelled: a timer and its cancellation are history events each. A timer serves every later wait
    whose deadline is not before it fires.
    """

    def __init__(self) -> None:
        self._timers: dict[asyncio.Task[None], datetime] = {}

    async def wait(self, is_there: Callable[[], bool], until: datetime, words: str) -> bool:
        """Return true once `is_there` holds, or false at `until`. Temporal's UI shows `words` on the timer."""
        while not is_there():
            if workflow.now() >= until:
                return False
            timer = self._find(until) or self._set(until, words)
            await workflow.wait_condition(partial(_is_over, is_there, timer))
        return True

    def _find(self, until: datetime) -> asyncio.Task[None] | None:
        # Choose the latest timer, to avoid waking the turn needlessly.
        soon = [timer for timer, at in self._timers.items() if at <= until and not timer.done()]
        return max(soon, key=self._timers.__getitem__, default=None)

    def _set(self, until: datetime, words: str) -> asyncio.Task[None]:
        timer = asyncio.create_task(workflow.sleep(until - workflow.now(), summary=words))
        self._timers[timer] = until
        timer.add_done_callback(lambda done: self._timers.pop(done, None))
        return timer


def _is_over(is_there: Callable[[], bool], timer: asyncio.Task[None]) -> bool:
    return is_there() or timer.done()
