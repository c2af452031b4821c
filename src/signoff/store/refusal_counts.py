"""Counts refused input by kind and hour for all processes: forged, replayed, late and other bad input."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, Literal, Protocol

from sqlalchemy import Connection, delete, func, select, update

from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.limits import REFUSAL_DAYS, REFUSAL_FLUSH_SECONDS
from signoff.store.claim_conditions import insert_new
from signoff.store.tables import REFUSALS, StoreClock

RefusalKind = Literal[
    "forged",
    "malformed",
    "replayed",
    "unproved",
    "late",
    "stale",
    "not_allowed",
    "unknown",
    "sign_in",
    "too_large",
    "too_slow",
    "busy",
]
"""`forged`: not from whom it claims; `malformed`: cannot be read; `replayed`: brought before; `unproved`: what it
claims is not in the store, or its sender is not proved; `late`: after its time; `stale`: for another revision;
`not_allowed`: from somebody who may not; `unknown`: about nothing there is; `sign_in`: a wrong token, cookie or login;
`too_large`, `too_slow`, `busy`: a body beyond a limit of `contracts/limits.py`."""
_HOUR_MILLIS: Final = 3_600_000
_log = logging.getLogger(__name__)


class TransactionRunner(Protocol):
    """Runs `work` in one transaction of the store; `Store.run`."""

    def __call__(self, work: Callable[[Connection], Any]) -> Awaitable[Any]:
        """Runs `work` in one transaction."""
        ...


class RefusalCounts:
    """Counts refusals in memory and adds them to the store once a second at most, so that a flood costs one write a
    second.
    """

    def __init__(self, run: TransactionRunner) -> None:
        self._run = run
        self._pending: Counter[RefusalKind] = Counter()
        self._flushing: asyncio.Task[None] | None = None

    def count(self, kind: RefusalKind) -> None:
        """Counts one refusal. Writes nothing itself, and never raises."""
        self._pending[kind] += 1
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush_soon())

    async def flush(self) -> None:
        """Adds the counts to the store; where the store is away, the next flush adds them."""
        pending, self._pending = self._pending, Counter()
        if not pending:
            return
        try:
            await self._run(lambda connection: _add(connection, pending))
        except StoreUnavailable as error:
            self._pending += pending
            _log.warning("%d refusals are not counted yet: %s", pending.total(), error.message)

    async def close(self) -> None:
        """Adds the remaining counts, then counts no more."""
        if self._flushing is not None:
            self._flushing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._flushing
        await self.flush()

    async def _flush_soon(self) -> None:
        try:
            await asyncio.sleep(REFUSAL_FLUSH_SECONDS)
            await self.flush()
        finally:
            self._flushing = None


async def refusals_since(run: TransactionRunner, ago: timedelta) -> dict[str, int]:
    """Returns how many refusals of each kind were counted in the full hours that `ago` covers, and in the present one.

    Kinds without any are left out. Raises `StoreUnavailable`.
    """

    def read(connection: Connection) -> dict[str, int]:
        first = _hour(connection) - int(ago.total_seconds() // 3_600)
        query = (
            select(REFUSALS.c.kind, func.sum(REFUSALS.c.number))
            .where(REFUSALS.c.hour >= first)
            .group_by(REFUSALS.c.kind)
            .order_by(REFUSALS.c.kind)
        )
        return {kind: int(number) for kind, number in connection.execute(query)}

    found: dict[str, int] = await run(read)
    return found


def _add(connection: Connection, pending: Counter[RefusalKind]) -> None:
    hour = _hour(connection)
    # Sorted: two processes that add the same kinds lock their rows in the same order.
    for kind in sorted(pending):
        if not insert_new(connection, REFUSALS, {"kind": kind, "hour": hour, "number": pending[kind]}):
            same = (REFUSALS.c.kind == kind) & (REFUSALS.c.hour == hour)
            connection.execute(update(REFUSALS).where(same).values(number=REFUSALS.c.number + pending[kind]))
    connection.execute(delete(REFUSALS).where(REFUSALS.c.hour < hour - 24 * REFUSAL_DAYS))


def _hour(connection: Connection) -> int:
    return int(connection.execute(select(StoreClock())).scalar_one()) // _HOUR_MILLIS
