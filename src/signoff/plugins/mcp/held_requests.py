"""Tracks held requests, so that a client can cancel one."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class RequestName(NamedTuple):
    """The name of one request among all clients."""

    session: str
    request: str
    """The client's own id."""


class HeldRequests:
    """The requests that this gateway holds."""

    def __init__(self) -> None:
        self._held: dict[RequestName, asyncio.Event] = {}
        self._waiting: Counter[str] = Counter()
        self._rests: set[asyncio.Task[None]] = set()

    @contextmanager
    def hold(self, name: RequestName | None) -> Iterator[asyncio.Event]:
        """The event is set if the request's client cancels it."""
        cancelled = asyncio.Event()
        if name is not None:
            self._held[name] = cancelled
        try:
            yield cancelled
        finally:
            if name is not None and self._held.get(name) is cancelled:
                del self._held[name]

    @contextmanager
    def wait_for(self, call: str) -> Iterator[None]:
        self._waiting[call] += 1
        try:
            yield
        finally:
            self._waiting[call] -= 1
            if not self._waiting[call]:
                del self._waiting[call]

    def is_awaited(self, call: str) -> bool:
        return call in self._waiting

    def finish_later(self, rest: Coroutine[Any, Any, None]) -> None:
        """Run the rest of a request whose connection was closed, because its own task ends."""
        task = asyncio.create_task(rest)
        self._rests.add(task)
        task.add_done_callback(self._rests.discard)

    def names(self) -> frozenset[RequestName]:
        return frozenset(self._held)

    def cancel(self, name: RequestName) -> None:
        """A hold of another gateway ends with its connection."""
        found = self._held.get(name)
        if found is not None:
            found.set()
