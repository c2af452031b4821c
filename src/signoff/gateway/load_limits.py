"""Limits the load of one person, one tenant and one gateway: lists, starts of turns, looks at tickets.

A person reads two lists at once, and equal lists are read once a second. The limit of starts applies to all gateways of
one store together.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from signoff.contracts.errors import BadRequest
from signoff.contracts.limits import LISTS_AT_ONCE, LISTS_OF_ONE
from signoff.contracts.person import Person
from signoff.formats.tenant_limits import TenantLimits
from signoff.store.limits.counted_acts import StartCounts
from signoff.store.store import Store

_SECONDS: Final = 0.004
_SHARE: Final = 0.125

SHARED_SECONDS: Final = 1.0
"""How long a list serves equal requests, from the start of its reading."""
_V = TypeVar("_V")


@dataclass(frozen=True)
class _Shared:
    begun: float
    task: asyncio.Task[Any]


class ListReads:
    """Reads lists for people. `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: Counter[tuple[str, str]] = Counter()
        self._turns: dict[tuple[str, str], asyncio.Semaphore] = {}
        self._shared: dict[tuple[Hashable, ...], _Shared] = {}

    async def share(
        self,
        person: Person | None,
        scopes: Collection[str],
        what: tuple[Hashable, ...],
        read: Callable[[], Awaitable[_V]],
    ) -> _V:
        """Share the result of an equal request of the same person with the same roles and scopes.

        `what` names the list and every filter in it. Raises like `limited`.
        """
        if person is None:
            return await read()
        name = (person.tenant, person.id, person.roles, tuple(sorted(scopes)), *what)
        shared = self._shared.get(name)
        if shared is None or not _is_fresh(shared, self._clock()):
            shared = _Shared(self._clock(), self._begin(person, read))
            self._shared = {key: each for key, each in self._shared.items() if _is_fresh(each, self._clock())}
            self._shared[name] = shared
        # If one reader disconnects, the others keep their list.
        value: _V = await asyncio.shield(shared.task)
        return value

    async def limited(self, person: Person | None, read: Callable[[], Awaitable[_V]]) -> _V:
        """Waits for a free place among the person's lists.

        Raises `BadRequest` (429, `lists`) if too many wait already.
        """
        return await read() if person is None else await self._begin(person, read)

    def forget(self) -> None:
        """Stop sharing earlier lists: a row was written since they were read."""
        self._shared.clear()

    def _begin(self, person: Person, read: Callable[[], Awaitable[_V]]) -> asyncio.Task[_V]:
        owner = (person.tenant, person.id)
        if self._open[owner] >= LISTS_OF_ONE:
            message = f"{LISTS_OF_ONE} lists are being read for you already; try again in a second"
            raise BadRequest(message, status=429, code="lists", after=1)
        # Count here: the task starts only after further requests may have arrived.
        self._open[owner] += 1
        task = asyncio.ensure_future(_read(self._turns.setdefault(owner, asyncio.Semaphore(LISTS_AT_ONCE)), read))
        task.add_done_callback(partial(self._end, owner))
        return task

    def _end(self, owner: tuple[str, str], task: asyncio.Task[Any]) -> None:
        self._open[owner] -= 1
        if not self._open[owner]:
            del self._open[owner], self._turns[owner]
        if not task.cancelled():
            # All readers may have disconnected. asyncio logs errors that no code has read.
            task.exception()


async def _read(turn: asyncio.Semaphore, read: Callable[[], Awaitable[_V]]) -> _V:
    async with turn:
        return await read()


def _is_fresh(shared: _Shared, now: float) -> bool:
    if not shared.task.done():
        return True
    failed = shared.task.cancelled() or shared.task.exception() is not None
    return not failed and now - shared.begun < SHARED_SECONDS


class StartLimit:
    """Counts starts in the store, and refuses those beyond the limit of their tenant."""

    def __init__(self, store: Store, limits: TenantLimits) -> None:
        self._store = store
        self._limits = limits

    async def take(self, tenant: str, *name: str) -> None:
        """The same `name` within the period of the limit is the same start.

        Raises `BadRequest` (429, `too_many_starts`) if the tenant has none left, and `StoreUnavailable`.
        """
        rate = self._limits.of(tenant).starts
        if rate is None:
            return
        starts, named = StartCounts(tenant, rate), "/".join(name)
        # Check before counting: a refused start takes no lock, so a flood does not block other writers.
        again = await self._store.read(lambda connection: starts.possible_in(connection, named))
        if not again:
            again = await self._store.run(lambda connection: starts.take(connection, named))
        if again:
            self._store.counts.count("signoff_starts_refused", tenant)
            seconds = math.ceil(again)
            raise BadRequest(
                f"the tenant `{tenant}` has begun as many turns as it may ({rate.count}/{rate.period}): try again in "
                f"{seconds} s",
                status=429,
                code="too_many_starts",
                after=seconds,
            )


class LookInterval:
    """Limits a gateway's looks at tickets to 250 a second, for any number of awaited calls.

    The longer a call takes, the fewer looks it gets: each look costs as much as it may save.
    """

    def __init__(self) -> None:
        self._awaited = 0

    @contextmanager
    def awaiting(self) -> Iterator[None]:
        self._awaited += 1
        try:
            yield
        finally:
            self._awaited -= 1

    def seconds(self, elapsed: float) -> float:
        """Return the seconds until the next look. `elapsed` is in seconds."""
        return max(_SECONDS * self._awaited, elapsed * _SHARE)
