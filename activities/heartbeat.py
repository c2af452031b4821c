"""Reports running work: heartbeats to Temporal for a turn's activity, and to the store for a tool that runs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from signoff.contracts.errors import StoreUnavailable
from signoff.store.store import Store

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


@contextlib.asynccontextmanager
async def report_running(store: Store, key: str, seconds: float = SECONDS) -> AsyncIterator[None]:
    """Records every `seconds` that the ticket `key` runs, while the block does; first after as many.

    Temporal's heartbeats do not show this: a holder of its credential may have any activity scheduled while the tool
    runs under another one.
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
            activity.logger.warning("that a tool still runs cannot be written: %s", error)


async def check_ended(store: Store, key: str) -> None:
    """Returns where nobody runs the ticket `key`; else raises an error that makes Temporal retry once nobody may."""
    left = await store.claim_remaining(key)
    if left > 0:
        again = timedelta(seconds=left + 0.1)
        raise ApplicationError("the tool may still be running", type="StillRuns", next_retry_delay=again)
