"""The background task that reads the calendars of people. Each gateway reads them for itself."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from signoff.gateway.deps import GatewayDeps
from signoff.gateway.vendors.calendars import CalendarReader, calendar_reader, read_all
from signoff.gateway.vendors.channel_tasks import keep_running

EVERY: Final = 900.0
_JITTER: Final = 0.1
_log = logging.getLogger(__name__)


class CalendarTask:
    """Reads all calendars every 15 minutes."""

    def __init__(self, deps: GatewayDeps, reader: CalendarReader | None = None) -> None:
        self._deps = deps
        self._reader = reader or calendar_reader(deps.settings, deps.secrets)

    async def run(self) -> None:
        async with self._reader.http:
            while True:
                await self.step()
                # Gateways that began together shall not ask a server together.
                await asyncio.sleep(EVERY * random.uniform(1 - _JITTER, 1 + _JITTER))

    async def step(self) -> None:
        """Raises `Unavailable` if the people are unknown at this time."""
        people = [each for each in self._deps.people.all() if each.calendar and each.active]
        kept = self._deps.calendars
        kept.forget_others(people)
        for person, reading in await read_all(people, self._reader, self._deps.clock()):
            if not kept.keep(person, reading, self._deps.clock()):
                continue
            if reading.problem:
                _log.warning("the calendar of `%s` cannot be read: %s", person.id, reading.problem)
            else:
                _log.info("the calendar of `%s` can be read again", person.id)


@asynccontextmanager
async def keep_calendars(deps: GatewayDeps) -> AsyncIterator[None]:
    """Read the calendars until the block ends."""
    async with keep_running("the reader of calendars", CalendarTask(deps).run):
        yield
