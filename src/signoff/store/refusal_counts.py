"""Counts refused input by kind and hour: forged, replayed, late and other.

All processes share the counts.
"""

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
"""Kinds of refused input.

- `forged`: not from the claimed sender
- `malformed`: cannot be read
- `replayed`: received before
- `unproved`: its claim is not in the store, or its sender is not proved
- `late`: after its deadline
- `stale`: for another revision
- `not_allowed`: from a person without the permission
- `unknown`: about an unknown subject
- `sign_in`: a wrong token, cookie or login
- `too_large`, `too_slow`, `busy`: a body beyond a limit of `contracts/limits.py`
"""
_HOUR_MILLIS: Final = 3_600_000
_log = logging.getLogger(__name__)


class TransactionRunner(Protocol):
    """Runs `work` in one transaction of the store, as `Store.run` does."""

    def __call__(self, work: Callable[[Connection], Any]) -> Awaitable[Any]: ...


class RefusalCounts:
    """Counts refusals in memory and adds them to the store at most once a second.

    A flood of refusals therefore costs only one write a second.
    """

    def __init__(self, run: TransactionRunner) -> None:
        self._run = run
        self._pending: Counter[RefusalKind] = Counter()
        self._flushing: asyncio.Task[None] | None = None

    def count(self, kind: RefusalKind) -> None:
        """Count one refusal. Writes nothing and never raises."""
        self._pending[kind] += 1
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush_soon())

    async def flush(self) -> None:
        """Add the counts to the store. If it is unavailable, keep them for the next flush."""
        pending, self._pending = self._pending, Counter()
        if not pending:
            return
        try:
            await self._run(lambda connection: _add(connection, pending))
        except StoreUnavailable as error:
            self._pending += pending
            _log.warning("%d refusals are not counted yet: %s", pending.total(), error.message)

    async def close(self) -> None:
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
    """Counts the last full hours (`ago`) and the present one.

    Leaves out kinds without refusals. Raises `StoreUnavailable`.
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

    counts: dict[str, int] = await run(read)
    return counts


def _add(connection: Connection, pending: Counter[RefusalKind]) -> None:
    hour = _hour(connection)
    # Sort the kinds, so that two processes lock their rows in the same order.
    for kind in sorted(pending):
        if not insert_new(connection, REFUSALS, {"kind": kind, "hour": hour, "number": pending[kind]}):
            same = (REFUSALS.c.kind == kind) & (REFUSALS.c.hour == hour)
            connection.execute(update(REFUSALS).where(same).values(number=REFUSALS.c.number + pending[kind]))
    connection.execute(delete(REFUSALS).where(REFUSALS.c.hour < hour - 24 * REFUSAL_DAYS))


def _hour(connection: Connection) -> int:
    return int(connection.execute(select(StoreClock())).scalar_one()) // _HOUR_MILLIS
