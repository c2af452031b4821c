"""Shares live updates: one watcher for each topic with followers."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any, Final

HEARTBEAT_SECONDS: Final = 15.0
"""Seconds between heartbeats of a silent stream."""
RETRY_MILLISECONDS: Final = 3_000

Source = Callable[[], AsyncGenerator[str, None]]


class Live:
    """Shares sources of changes between followers, within one event loop. `close` ends all streams."""

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {}
        self._closing = asyncio.Event()
        self._wakes: set[Callable[[], None]] = set()

    async def follow(self, topic: str, source: Source) -> AsyncGenerator[str, None]:
        """Yield server-sent events: the newest at once, then each new one.

        One `source` serves all followers. If a source raises, the stream ends and the reader reconnects after 3 s.
        """
        shared = self._topics.get(topic)
        if shared is None:
            shared = self._topics[topic] = _Topic(source)
        shared.watchers += 1
        try:
            yield f"retry: {RETRY_MILLISECONDS}\n\n"
            async for event in self._events(shared):
                yield event
        finally:
            shared.watchers -= 1
            if not shared.watchers:
                self._topics.pop(topic, None)
                shared.stop()

    def close(self) -> None:
        """End every stream, so that the server can stop."""
        self._closing.set()
        for wake in tuple(self._wakes):
            wake()

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    @contextlib.contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` if streams end during the block."""
        self._wakes.add(wake)
        try:
            yield
        finally:
            self._wakes.discard(wake)

    async def pause(self, seconds: float) -> bool:
        """Return `False` at once if streams end."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)
        return not self._closing.is_set()

    async def _events(self, shared: "_Topic") -> AsyncIterator[str]:
        seen = 0
        while not self._closing.is_set():
            if shared.number > seen:
                seen = shared.number
                yield shared.newest
                continue
            if shared.over:
                return
            if not await self._wait_for_change(shared):
                yield ": still here\n\n"

    async def _wait_for_change(self, shared: "_Topic") -> bool:
        # Take the current event object: a later one would miss the changes in between.
        waits = [asyncio.create_task(shared.changed.wait()), asyncio.create_task(self._closing.wait())]
        try:
            done, _ = await asyncio.wait(waits, timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        return bool(done)


class _Topic:
    """One source, its newest event and its number."""

    def __init__(self, source: Source) -> None:
        self.watchers = 0
        self.newest = ""
        self.number = 0
        self.over = False
        self.changed = asyncio.Event()
        self._task = asyncio.create_task(self._run(source))

    def stop(self) -> None:
        self._task.cancel()

    async def _run(self, source: Source) -> None:
        try:
            async with contextlib.aclosing(source()) as events:
                async for event in events:
                    self.newest = event
                    self.number += 1
                    self._wake()
        finally:
            self.over = True
            self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


def event(name: str, data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"
