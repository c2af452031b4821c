"""Numbers events while a gateway runs, whether or not anybody reads them, and removes those that are too old."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from signoff.audit.event_deliveries import EventDeliveries
from signoff.audit.event_stream import EventStream
from signoff.contracts.errors import StoreUnavailable

EVENT_SECONDS: Final = 5.0
"""How long a record may wait until its event has a number, where nobody reads; who reads numbers at once."""
_REMOVAL_ROUNDS: Final = 720
"""Every so many rounds, each hour, old events are removed."""
_log = logging.getLogger(__name__)


@asynccontextmanager
async def keep_events(
    events: EventStream, deliveries: EventDeliveries, days: int, *, every: float = EVENT_SECONDS
) -> AsyncIterator[None]:
    """Numbers events each `every` seconds, and keeps them and what is owed of them for `days` days.

    It ends with the block.

    A store that is away is tried again, and never ends the block.
    """
    keeping = asyncio.create_task(_keep(events, deliveries, days, every))
    try:
        yield
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping


async def _keep(events: EventStream, deliveries: EventDeliveries, days: int, every: float) -> None:
    rounds = 0
    while True:
        try:
            await events.extend()
            if rounds % _REMOVAL_ROUNDS == 0:
                await events.remove_old(days)
                await deliveries.remove_old(days)
        except StoreUnavailable as error:
            _log.warning("no events were numbered: %s", error.message)
        rounds += 1
        await asyncio.sleep(every)
