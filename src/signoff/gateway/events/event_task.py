"""Records what nobody else writes, numbers events while a gateway runs, and removes those that are too old."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from signoff.audit.event_deliveries import EventDeliveries
from signoff.audit.event_stream import EventStream
from signoff.contracts.errors import StoreUnavailable
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.events.deadline_recorder import DeadlineRecorder
from signoff.gateway.events.turn_end_recorder import TurnEndRecorder
from signoff.gateway.vendors.channel_tasks import run_forever

EVENT_SECONDS: Final = 5.0
"""How long a record may wait until its event has a number, where nobody reads; who reads numbers at once."""
LOOK_SECONDS: Final = 2.0
"""How often it is looked what happened while nobody wrote."""
_REMOVAL_ROUNDS: Final = 720
"""Every so many rounds, each hour, old events are removed."""
_log = logging.getLogger(__name__)


@asynccontextmanager
async def record_progress(deps: GatewayDeps, *, every: float = LOOK_SECONDS) -> AsyncIterator[None]:
    """Records what happens to turns and requests while nobody writes, looking each `every` seconds until the block
    ends.
    """

    async def follow(step: Callable[[], Awaitable[int]]) -> None:
        while True:
            await step()
            await asyncio.sleep(every)

    recorders = {"deadlines": DeadlineRecorder(deps).step, "ends of turns": TurnEndRecorder(deps).step}
    recording = [
        asyncio.create_task(run_forever(f"the recorder of {what}", partial(follow, step)))
        for what, step in recorders.items()
    ]
    try:
        yield
    finally:
        for each in recording:
            each.cancel()
        await asyncio.gather(*recording, return_exceptions=True)


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
