"""Remembers which requests are held, so that a client can say that it does not wait for one any more."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class RequestName(NamedTuple):
    """Names one request among those of all clients."""

    session: str
    """The id of the client's session."""
    request: str
    """The request's own id, which is the client's."""


class HeldRequests:
    """The requests that this gateway holds, by name."""

    def __init__(self) -> None:
        self._held: dict[RequestName, asyncio.Event] = {}
        self._waiting: Counter[str] = Counter()
        self._rests: set[asyncio.Task[None]] = set()

    @contextmanager
    def hold(self, name: RequestName | None) -> Iterator[asyncio.Event]:
        """Remembers a request while the block runs; the event is set where its client cancels it."""
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
        """Counts a request that waits for a call while the block runs."""
        self._waiting[call] += 1
        try:
            yield
        finally:
            self._waiting[call] -= 1
            if not self._waiting[call]:
                del self._waiting[call]

    def is_awaited(self, call: str) -> bool:
        """Returns whether a request waits for a call here."""
        return call in self._waiting

    def finish_later(self, rest: Coroutine[Any, Any, None]) -> None:
        """Runs the rest of a request whose connection was closed: its own task is at its end."""
        task = asyncio.create_task(rest)
        self._rests.add(task)
        task.add_done_callback(self._rests.discard)

    def names(self) -> frozenset[RequestName]:
        """Returns the requests that are held now, as far as they have names."""
        return frozenset(self._held)

    def cancel(self, name: RequestName) -> None:
        """Ends the hold of a request; one that another gateway holds ends with its connection."""
        found = self._held.get(name)
        if found is not None:
            found.set()
