"""Shares one measurement of the backlog among all gateways: it reads every index entry of all that waits."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from sqlalchemy import Connection, select, update

from signoff.store.claim_conditions import insert_new
from signoff.store.gauges.backlog_reader import Backlog, BacklogReader
from signoff.store.leases import LEASE_SECONDS, in_seconds
from signoff.store.store import Store
from signoff.store.tables import READINGS, StoreClock

RENEW_SECONDS: Final = 15.0
"""A measurement is renewed this long after the last one ended, or later if it takes long."""
_PAUSE: Final = 20
"""The least pause after a measurement, as a multiple of its duration."""
_NAME: Final = "backlog"
_LAST: Final = select(READINGS.c.body, (StoreClock() - READINGS.c.read_at).label("age")).where(
    READINGS.c.name == _NAME, READINGS.c.body != ""
)
_FRESH: Final = select(READINGS.c.name).where(READINGS.c.name == _NAME, READINGS.c.renew_at > StoreClock())
_CLAIM: Final = (
    update(READINGS)
    .where(READINGS.c.name == _NAME, READINGS.c.renew_at <= StoreClock())
    .values(renew_at=in_seconds(LEASE_SECONDS))
)


class BacklogReading(NamedTuple):
    """A measurement, by any gateway."""

    backlog: Backlog
    age: float
    """The seconds since it ended."""


class BacklogReadings:
    """Reads and renews the last measurement in a store. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._reader = BacklogReader(store)

    async def last(self) -> BacklogReading | None:
        """Return `None` before the first."""
        row = await self._store.read(lambda connection: connection.execute(_LAST).first())
        return None if row is None else BacklogReading(Backlog.model_validate_json(row.body), max(row.age, 0) / 1000)

    async def renew(self) -> bool:
        """Measure if it is due and no other gateway does. Return whether this one did.

        If a gateway ends while it measures, another one measures `LEASE_SECONDS` later.
        """
        # Read first: writing takes SQLite's only lock.
        fresh = await self._store.read(lambda connection: connection.execute(_FRESH).first())
        if fresh is not None or not await self._store.run(_claim):
            return False
        began = self._clock()
        body = (await self._reader.read()).model_dump_json()
        pause = max(RENEW_SECONDS, _PAUSE * (self._clock() - began))
        change = update(READINGS).where(READINGS.c.name == _NAME)
        values = {"body": body, "read_at": StoreClock(), "renew_at": in_seconds(pause)}
        await self._store.run(lambda connection: connection.execute(change.values(values)).close())
        return True


def _claim(connection: Connection) -> bool:
    insert_new(connection, READINGS, {"name": _NAME, "body": "", "read_at": 0, "renew_at": 0})
    return connection.execute(_CLAIM).rowcount == 1
