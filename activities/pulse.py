"""Heartbeats in the background, so that a lost worker is noticed and a cancel arrives."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from temporalio import activity

_SECONDS = 5.0


@contextlib.asynccontextmanager
async def pulse() -> AsyncIterator[None]:
    """Heartbeat every five seconds while the block runs; does nothing in a local activity."""
    if activity.info().is_local:
        yield
        return
    task = asyncio.create_task(_beat())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _beat() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(_SECONDS)
