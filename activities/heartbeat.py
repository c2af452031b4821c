"""Reports running work: heartbeats to Temporal for a turn's activity, and to the store for a running tool."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from signoff.contracts.errors import StoreUnavailable
from signoff.store.store import Store

# Turns set a heartbeat timeout of 20 s: a beat may be late before the worker counts as lost.
SECONDS = 5.0


@contextlib.asynccontextmanager
async def send_heartbeats(seconds: float = SECONDS) -> AsyncIterator[None]:
    """Send a heartbeat every `seconds` during the block, first after `seconds`. Does nothing in a local activity."""
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
    # Each heartbeat costs the server a call and a commit. A short activity needs none.
    while True:
        await asyncio.sleep(seconds)
        activity.heartbeat()


@contextlib.asynccontextmanager
async def report_running(store: Store, key: str, seconds: float = SECONDS) -> AsyncIterator[None]:
    """Record every `seconds` that the ticket `key` runs, first after `seconds`.

    Temporal's heartbeats do not prove this: anyone with its credentials can schedule any activity while the tool runs
    under another one.
    """
    task = asyncio.create_task(_tell(store, key, seconds))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _tell(store: Store, key: str, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await store.record_heartbeat(key)
        except StoreUnavailable as error:
            activity.logger.warning("the heartbeat of a tool cannot be recorded: %s", error)


async def check_ended(store: Store, key: str) -> None:
    """Return if no process runs the ticket `key`.

    Otherwise raise an error that Temporal retries after the claim ends.
    """
    left = await store.claim_remaining(key)
    if left > 0:
        again = timedelta(seconds=left + 0.1)
        raise ApplicationError("the tool may still be running", type="StillRuns", next_retry_delay=again)
