"""Wakes requests that wait for a turn when the store changes its rows."""

import asyncio
import contextlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final

from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import TurnKey
from signoff.store.questions.turn_stamps import TurnStamp, TurnStamps
from signoff.store.store import Store

TICK_SECONDS: Final = 0.05
"""Seconds between two looks at the store's mark."""
LOOK_SECONDS: Final = 5.0
"""Seconds after which all turns are read even if the mark is unchanged: a notice may get lost."""
MOVING_SECONDS: Final = 0.7
"""Seconds between two looks at a turn that works."""
ASKED_SECONDS: Final = 15.0
"""Seconds between two looks at a turn that waits for approvers, unless its rows change."""
_SHARE: Final = 4
"""Reads take at most one part in this many of the time."""
_OUTAGE_SECONDS: Final = 1.0


class Follower:
    """One request that waits for turns."""

    def __init__(self, stamps: Mapping[TurnKey, TurnStamp]) -> None:
        self.stamps = dict(stamps)
        """The stamps of the turns at the last look."""
        self._changed = False
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    def tell(self, turn: TurnKey, stamp: TurnStamp) -> None:
        """Wake if this stamp is new."""
        if self.stamps[turn] != stamp:
            self.stamps[turn] = stamp
            self._changed = True
            self.wake()

    async def wait(self, seconds: float) -> bool:
        """Return after `seconds` or `wake`. Returns whether rows have changed since the last return."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), seconds)
        self._woken.clear()
        changed, self._changed = self._changed, False
        return changed


class TurnWatch:
    """Follows turns for all requests of a gateway together: one query reads the rows of all.

    Reads only after the store's mark has changed, each `LOOK_SECONDS` regardless, and once after an outage.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stamps = TurnStamps(store)
        self._followers: dict[TurnKey, set[Follower]] = {}
        self._unread: set[TurnKey] = set()
        self._task: asyncio.Task[None] | None = None

    async def read(self, turns: Sequence[TurnKey]) -> dict[TurnKey, TurnStamp]:
        """Raises `StoreUnavailable`."""
        return await self._stamps.read(turns)

    @contextlib.contextmanager
    def follow(self, stamps: Mapping[TurnKey, TurnStamp]) -> Iterator[Follower]:
        """`stamps` are the states that the request knows. A change since then wakes it."""
        follower = Follower(stamps)
        for turn in stamps:
            self._followers.setdefault(turn, set()).add(follower)
        # The rows may have changed since `stamps` were read, before the last look at the mark.
        self._unread.update(stamps)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            yield follower
        finally:
            for turn in stamps:
                others = self._followers[turn]
                others.discard(follower)
                if not others:
                    del self._followers[turn]

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        mark: Hashable = None
        read_at = 0.0
        while self._followers:
            began = clock()
            try:
                newest = await self._store.change_mark()
                is_due = newest != mark or began - read_at >= LOOK_SECONDS
                turns = [*self._followers] if is_due else [turn for turn in self._unread if turn in self._followers]
                self._unread.clear()
                if turns:
                    self._tell(await self._stamps.read(turns))
                if is_due:
                    mark, read_at = newest, began
            except StoreUnavailable:
                # Then read all once the store answers.
                mark = None
                await asyncio.sleep(_OUTAGE_SECONDS)
                continue
            await asyncio.sleep(max(TICK_SECONDS, (clock() - began) * (_SHARE - 1)))

    def _tell(self, stamps: Mapping[TurnKey, TurnStamp]) -> None:
        for turn, stamp in stamps.items():
            for follower in self._followers.get(turn, ()):
                follower.tell(turn, stamp)
