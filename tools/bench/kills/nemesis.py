"""The nemesis: kills processes and starts them again at moments that a seed determines."""

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from tools.bench.kills.journal import Journal, Struck

VICTIMS = ("worker", "gateway", "temporal")
_WEIGHTS = (5, 3, 2)
_QUIET_SECONDS = (1.0, 6.0)
"""The time between a start and the next kill."""
_DOWN_SECONDS = (0.0, 4.0)
_BOTH = 0.2
"""The probability that a second process dies with the first one."""
_AGAIN_SECONDS = 0.5


class Processes(Protocol):
    """The processes that can be killed, by name."""

    async def kill(self, name: str) -> None:
        """Kill a process by signal 9."""

    async def start(self, name: str) -> None:
        """Start a process and return once it is ready. Raises `CannotStart`."""

    def has_ended(self, name: str) -> bool:
        """Return whether a started process has ended unexpectedly."""


class CannotStart(Exception):
    """A process ended before it was ready, for example because the server is down."""


@dataclass(frozen=True)
class Strike:
    """One step of the plan."""

    after: float
    """Seconds of quiet before the strike."""
    victims: tuple[str, ...]
    down: float
    """Seconds until the victims are started again."""


def plan_strikes(seed: int) -> Iterator[Strike]:
    """Yield strikes without end; the same seed gives the same ones."""
    dice = random.Random(f"nemesis {seed}")
    # Take each kind once before chance decides: a short run kills all three.
    first = dice.sample(VICTIMS, len(VICTIMS))
    while True:
        victims: tuple[str, ...] = (first.pop() if first else dice.choices(VICTIMS, _WEIGHTS)[0],)
        if dice.random() < _BOTH:
            victims += (dice.choice([each for each in VICTIMS if each not in victims]),)
        yield Strike(dice.uniform(*_QUIET_SECONDS), victims, dice.uniform(*_DOWN_SECONDS))


class Nemesis:
    """Strikes as planned until its time has passed, then leaves every process running."""

    def __init__(self, processes: Processes, journal: Journal, seed: int) -> None:
        self._processes = processes
        self._journal = journal
        self._seed = seed

    async def run(self, seconds: float) -> None:
        """Continue on a slow machine until each kind of process was killed."""
        ends = time.monotonic() + seconds
        for number, strike in enumerate(plan_strikes(self._seed)):
            if number >= len(VICTIMS) and time.monotonic() + strike.after > ends:
                break
            await asyncio.sleep(strike.after)
            for victim in strike.victims:
                await self._processes.kill(victim)
                self._journal.write(Struck(victim=victim, act="killed"))
            await asyncio.sleep(strike.down)
            await asyncio.gather(*(self._start(victim) for victim in strike.victims))
            await self._revive()
        await self._revive()

    async def watch(self) -> None:
        """Restart each process that ends unexpectedly, until cancelled."""
        while True:
            await self._revive()
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _revive(self) -> None:
        for victim in VICTIMS:
            if self._processes.has_ended(victim):
                self._journal.write(Struck(victim=victim, act="ended"))
                await self._start(victim)

    async def _start(self, victim: str) -> None:
        """Repeat the start until the process is ready, as a supervisor does."""
        while True:
            try:
                await self._processes.start(victim)
            except CannotStart as error:
                self._journal.write(Struck(victim=victim, act="refused", words=str(error)[-300:]))
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                self._journal.write(Struck(victim=victim, act="started"))
                return
