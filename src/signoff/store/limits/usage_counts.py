"""Checks whether limited tools may be used again. The ticket of a call takes the use."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from signoff.contracts.usage import LimitedUse
from signoff.store.claim_conditions import possible_again
from signoff.store.store import Store


class UsageCounts:
    """Reads the uses in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def check(self, uses: Sequence[LimitedUse]) -> list[datetime | None]:
        """Return for each use `None` if it is possible now, or the time when it will be.

        Does not count a use taken by the same call. Raises `StoreUnavailable`.
        """

        def read(connection: Connection) -> list[datetime | None]:
            return [possible_again(connection, use, but=use.call) for use in uses]

        return await self._store.read(read)
