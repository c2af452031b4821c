"""Sends heartbeats in the background, so that a lost worker is noticed and a cancel arrives."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from temporalio import activity

# Turns set a heartbeat timeout of 20 s: a beat may come late before a worker is taken for lost.
SECONDS = 5.0


@contextlib.asynccontextmanager
async def send_heartbeats(seconds: float = SECONDS) -> AsyncIterator[None]:
    """Sends a heartbeat every `seconds` while the block runs, first after as many; does nothing in a local activity."""
    if activity.info().is_local:
        yield
        return
    task = asyncio.create_task(_beat(seconds))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _beat(seconds: float) -> None:
    # Each heartbeat is a call and a commit of the server's: a short activity needs none.
    while True:
        await asyncio.sleep(seconds)
        activity.heartbeat()
