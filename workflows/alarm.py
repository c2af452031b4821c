"""Waits for something or for a moment, and has the server wake the turn as seldom as can be."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial

from temporalio import workflow


class Alarm:
    """Wakes the turn of one external call.

    Each timer is an event, and its cancel another: one that is set is left to run, and serves every later wait that
    does not end before it fires. Such a turn ends before most of them do.
    """

    def __init__(self) -> None:
        self._timers: dict[asyncio.Task[None], datetime] = {}

    async def wait(self, is_there: Callable[[], bool], until: datetime, words: str) -> bool:
        """Returns whether `is_there`, once it is or at `until`; `words` say in Temporal's UI what ends then."""
        while not is_there():
            if workflow.now() >= until:
                return False
            timer = self._find(until) or self._set(until, words)
            await workflow.wait_condition(partial(_is_over, is_there, timer))
        return True

    def _find(self, until: datetime) -> asyncio.Task[None] | None:
        # The last of them, or the turn would be woken for nothing.
        soon = [timer for timer, at in self._timers.items() if at <= until and not timer.done()]
        return max(soon, key=self._timers.__getitem__, default=None)

    def _set(self, until: datetime, words: str) -> asyncio.Task[None]:
        timer = asyncio.create_task(workflow.sleep(until - workflow.now(), summary=words))
        self._timers[timer] = until
        timer.add_done_callback(lambda done: self._timers.pop(done, None))
        return timer


def _is_over(is_there: Callable[[], bool], timer: asyncio.Task[None]) -> bool:
    return is_there() or timer.done()
