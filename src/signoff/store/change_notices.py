"""Tells the processes of one PostgreSQL store that another process has changed it.

A notice is a hint without contents: any role that may connect can send one, and one may get lost.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Hashable
from typing import Any, Final

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

_log = logging.getLogger(__name__)
CHANGED: Final = "signoff-changed"
"""The key in a connection's info that marks a transaction for a notice."""
CHANNEL: Final = "signoff_changes"
_NOTIFY: Final = text(f"NOTIFY {CHANNEL}")
GATHER_SECONDS: Final = 0.02
"""The time in which commits share one notice."""
ECHO_EVERY_SECONDS: Final = 10.0
"""How often a listener sends itself a notice, which finds dead connections."""
ECHO_SECONDS: Final = 3.0
"""The longest wait for that notice."""
_AGAIN_SECONDS: Final = 1.0


def note_change(connection: Connection) -> None:
    """Wake those that wait for questions, answers or outcomes after this transaction's commit."""
    connection.info[CHANGED] = True


class ChangeNotices:
    """Sends notices through `engine`, and hears them on one connection of `listening`."""

    def __init__(self, engine: AsyncEngine, listening: AsyncEngine) -> None:
        self._engine = engine
        self._listening = listening
        self._heard = 0
        self._hears = asyncio.Event()
        self._echo = asyncio.Event()
        self._unsent = False
        self._sending: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None

    def announce(self) -> None:
        """Send a notice soon."""
        self._unsent = True
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._gather())

    async def check(self) -> bool:
        """Return whether the listener hears its own notices. Waits for the first one."""
        self.mark()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hears.wait(), ECHO_SECONDS)
        return self._hears.is_set()

    def mark(self) -> Hashable:
        """Return a value that differs after each notice, and each second while no notices arrive."""
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep())
        return (self._heard, 0 if self._hears.is_set() else int(time.monotonic()))

    async def close(self) -> None:
        tasks = [task for task in (self._keeping, self._sending) if task is not None]
        if self._keeping is not None:
            self._keeping.cancel()
        # A process that ends soon after its commit still tells it.
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._listening.dispose()

    async def _gather(self) -> None:
        # A commit during a sending may be later than the notice that it sends.
        while self._unsent:
            await asyncio.sleep(GATHER_SECONDS)
            self._unsent = False
            # Listeners look without a notice, too.
            with contextlib.suppress(Exception):
                await self._send()

    async def _send(self) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(_NOTIFY)

    async def _keep(self) -> None:
        while True:
            try:
                await self._listen()
            except Exception as error:
                _log.debug("no notices arrive from the store: %s", type(error).__name__)
            self._hears.clear()
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _listen(self) -> None:
        """Return when the connection is lost. Raises if no notice arrives."""
        lost = asyncio.Event()
        async with self._listening.connect() as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            driver.add_termination_listener(lambda _: lost.set())
            await driver.add_listener(CHANNEL, self._hear)
            try:
                while not lost.is_set():
                    self._echo.clear()
                    # Through the pool: behind a pooler of transactions, a listener hears nothing.
                    await self._send()
                    await asyncio.wait_for(self._echo.wait(), ECHO_SECONDS)
                    self._hears.set()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(lost.wait(), ECHO_EVERY_SECONDS)
            finally:
                # Closing politely would wait for a network that is gone.
                driver.terminate()

    def _hear(self, *_: object) -> None:
        self._heard += 1
        self._echo.set()
