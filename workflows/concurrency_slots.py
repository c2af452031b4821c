"""Decides which calls of a turn run at once: several safe ones, or one exclusive one; first ready, first served."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from temporalio import workflow

from signoff.contracts.activity_messages import RunOptions


class _Place:
    """Marks one call in the line, or among those that run. Equal to itself only: options of two calls may be equal."""

    def __init__(self, options: RunOptions) -> None:
        self.options = options


class ConcurrencySlots:
    """Keeps the calls that run, and the line of those that are ready to. Waiting for people takes no place.

    Nobody overtakes, so an exclusive call gets its turn. No lock of asyncio's: what the line depends on is looked at
    after each event of the history, and comes out the same whenever that is read.
    """

    def __init__(self) -> None:
        self._line: list[_Place] = []
        self._inside: list[_Place] = []

    @asynccontextmanager
    async def acquire(self, options: RunOptions, wanted: Callable[[], bool]) -> AsyncIterator[bool]:
        """Gives a call a place as soon as there is one; yields False, and gives none, once it is not `wanted`."""
        place = _Place(options)
        self._line.append(place)
        try:
            if wanted() and not self._may(place):
                await workflow.wait_condition(lambda: not wanted() or self._may(place))
        finally:
            # Cancelled as well: whoever stays in the line without coming in keeps out all behind them.
            self._line.remove(place)
        if not wanted():
            yield False
            return
        self._inside.append(place)
        try:
            yield True
        finally:
            self._inside.remove(place)

    def _may(self, place: _Place) -> bool:
        if self._line[0] is not place:
            return False
        if not self._inside:
            return True
        alone = place.options.exclusive or any(each.options.exclusive for each in self._inside)
        return not alone and len(self._inside) < place.options.at_once
