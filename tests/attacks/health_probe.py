"""Asks a gateway for its health again and again, in a process of its own, and says how long each answer took.

`health_probe.py URL`; ends with its standard input, then prints the seconds as JSON.
"""

import asyncio
import contextlib
import http.client
import json
import sys
import threading
import time
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

FLOOR_SECONDS = 1.0
"""Within which health is answered, whatever strangers do."""
RATIO = 5.0
"""A machine that is slow by itself is given so many times what it takes without them, on top."""
_BETWEEN_SECONDS = 0.02


@contextlib.asynccontextmanager
async def probed(url: str) -> AsyncIterator[list[float]]:
    """The seconds of every answer during the block; the list is filled at its end."""
    taken: list[float] = []
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, url, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"begun\n"
    try:
        yield taken
    finally:
        # Empty input closes it; None would leave it open.
        out, _ = await process.communicate(b"")
    taken += json.loads(out)


async def at_rest(url: str) -> float:
    """The slowest of a second of answers without any load."""
    async with probed(url) as taken:
        await asyncio.gather(*(asyncio.sleep(0.1 * count) for count in range(10)))
    return max(taken)


def in_time(taken: list[float], rest: float) -> bool:
    """Whether every answer came in time, by what the machine takes without load."""
    assert taken
    return max(taken) <= FLOOR_SECONDS + RATIO * rest


def _probe(url: str) -> None:
    parts = urlsplit(url)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    taken: list[float] = []
    while not ended.wait(_BETWEEN_SECONDS):
        begun = time.monotonic()
        # A connection for each: what is kept open would not be kept out by a limit of connections.
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        answer.read()
        connection.close()
        assert answer.status == 200, answer.status
        taken.append(time.monotonic() - begun)
        if len(taken) == 1:
            print("begun", flush=True)
    print(json.dumps(taken), flush=True)


if __name__ == "__main__":
    _probe(sys.argv[1])
