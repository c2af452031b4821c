"""How long a test pauses between two looks at what it waits for."""

import asyncio
from collections.abc import Callable, Iterator

FIRST_SECONDS = 0.03
MOST_SECONDS = 0.3
_GROWTH = 1.25


def pauses() -> Iterator[float]:
    """Seconds without end, each longer than the one before: what takes long is looked at less often.

    A look asks a gateway, a worker and a server: looking twenty times a second at what takes seconds kept all of them
    so busy that it took longer.
    """
    seconds = FIRST_SECONDS
    while True:
        yield seconds
        seconds = min(seconds * _GROWTH, MOST_SECONDS)


async def until(seen: Callable[[], bool], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        for pause in pauses():
            if seen():
                return
            await asyncio.sleep(pause)
