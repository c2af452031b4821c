import asyncio
from collections.abc import Callable, Iterator

FIRST_SECONDS = 0.03
MOST_SECONDS = 0.3
_GROWTH = 1.25


def pauses() -> Iterator[float]:
    """Endless seconds, each longer than the one before. A check uses a gateway, a worker and a server: twenty checks a
    second kept all of them so busy that the condition took longer.
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
