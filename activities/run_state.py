"""Keeps the store informed which begun tools still run: nobody is asked about a call that does.

Temporal's heartbeats do not say so to anybody here: who holds a credential of its may have any activity scheduled while
the tool goes on under another one.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from signoff.activities.heartbeat import SECONDS
from signoff.contracts.errors import StoreUnavailable
from signoff.store.store import Store


@contextlib.asynccontextmanager
async def report_running(store: Store, key: str, seconds: float = SECONDS) -> AsyncIterator[None]:
    """Records every `seconds` that the ticket `key` runs, while the block does; first after as many."""
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
