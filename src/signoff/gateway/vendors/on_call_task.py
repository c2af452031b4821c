"""The background task that reads rotas."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from signoff.gateway.deps import GatewayDeps
from signoff.gateway.vendors.channel_tasks import keep_running
from signoff.gateway.vendors.on_call import EVERY, OnCallReader, on_call_problem, on_call_reader, read_rotas
from signoff.people.vouched_directory import VouchedDirectory

FIRST_SECONDS: Final = 15.0
"""The longest wait for the first reading."""
_JITTER: Final = 0.1
_log = logging.getLogger(__name__)


class OnCallTask:
    """Reads all rotas each minute."""

    def __init__(self, deps: GatewayDeps, reader: OnCallReader | None = None) -> None:
        self._deps = deps
        self._reader = reader or on_call_reader(deps.settings, deps.secrets)
        self._problems: dict[str, str] = {}
        self.has_read = asyncio.Event()

    async def run(self) -> None:
        async with self._reader.http:
            while True:
                await self.step()
                self.has_read.set()
                # Gateways that began together shall not ask a server together.
                await asyncio.sleep(EVERY.total_seconds() * random.uniform(1 - _JITTER, 1 + _JITTER))

    async def step(self) -> None:
        """Raises `Unavailable` if the people are unknown now."""
        deps, rotas = self._deps, self._deps.catalog.on_call.values()
        readings = await read_rotas(rotas, self._reader, deps.rotas, deps.clock)
        # A rota gives no right to people known by sign-in alone.
        people = deps.people.declared if isinstance(deps.people, VouchedDirectory) else deps.people
        for rota, reading in readings:
            unread = f"it cannot be read: {reading.problem}" if reading.problem else ""
            problem = unread or on_call_problem(rota, reading, people, deps.clock())
            before = self._problems.get(rota.name, "")
            self._problems[rota.name] = problem
            if problem and problem != before:
                _log.warning("rota `%s`: %s", rota.name, problem)
            elif before and not problem:
                _log.info("rota `%s` names a person on call again", rota.name)


@asynccontextmanager
async def keep_rotas(deps: GatewayDeps) -> AsyncIterator[None]:
    """Read rotas during the block, which begins after the first reading."""
    if not deps.catalog.on_call:
        yield
        return
    task = OnCallTask(deps)
    async with keep_running("the reader of rotas", task.run):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(task.has_read.wait(), FIRST_SECONDS)
        yield
