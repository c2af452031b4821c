"""Joins the calls that are made while one runs into the next one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class JoinedCalls(Generic[_Item, _Result]):
    """Calls `work` with the items of all calls that wait for it. One runs at a time.

    Each caller gets the result, or the error, of the whole call. A single caller waits for no other.
    """

    def __init__(self, work: Callable[[Sequence[_Item]], Awaitable[_Result]]) -> None:
        self._work = work
        self._waiting: list[_Item] = []
        self._ended: asyncio.Future[_Result] | None = None
        self._running = asyncio.Lock()

    async def call(self, items: Sequence[_Item]) -> _Result:
        self._waiting += items
        if self._ended is None:
            self._ended = asyncio.ensure_future(self._run())
            self._ended.add_done_callback(_note_error)
        # One caller that is cancelled does not cancel the others.
        return await asyncio.shield(self._ended)

    async def _run(self) -> _Result:
        async with self._running:
            items, self._waiting, self._ended = self._waiting, [], None
            return await self._work(items)


def _note_error(ended: asyncio.Future[Any]) -> None:
    # All callers may have been cancelled. Without this, asyncio would log an error that no caller retrieved.
    if not ended.cancelled():
        ended.exception()
