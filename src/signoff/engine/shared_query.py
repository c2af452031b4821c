"""Runs one query of a run at a time, shared by all callers that asked before it began."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


class SharedQueries:
    """Answers callers that ask the same question meanwhile by the next query, which is one for all of them.

    A caller never gets the answer of the query under way: it may have been answered before what the caller did last.
    Each query makes a worker read a run that it no longer keeps, and the SDK (1.35) loses a run that is queried several
    times at once where it has no place left to keep it in: hence one at a time, however many callers there are.
    """

    def __init__(self) -> None:
        self._now: dict[str, asyncio.Task[Any]] = {}
        self._next: dict[str, asyncio.Task[Any]] = {}

    async def ask(self, key: str, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Calls `ask` once for all callers with the same `key` now; returns its result. Raises what it raises."""
        waiting = self._next.get(key)
        if waiting is None:
            before = self._now.get(key)
            waiting = asyncio.create_task(self._after(key, before, ask))
            # Looked at here: where all who asked have gone away, nobody else does, and asyncio complains.
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
            if before is None:
                self._now[key] = waiting
            else:
                self._next[key] = waiting
        # Shielded: one who goes away does not take the answer from the others.
        return await asyncio.shield(waiting)

    async def _after(self, key: str, before: asyncio.Task[Any] | None, ask: Callable[[], Awaitable[Any]]) -> Any:
        if before is not None:
            await asyncio.wait([before])
            self._now[key] = self._next.pop(key)
        try:
            return await ask()
        finally:
            if key not in self._next:
                del self._now[key]
