"""Reads whether limited tools may be used once more; a use is taken with its call's ticket."""

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
        """Returns for each use None where it can be taken now, else the time when it can.

        A use that its own call has is not counted.

        Raises `StoreUnavailable`.
        """

        def read(connection: Connection) -> list[datetime | None]:
            return [possible_again(connection, use, but=use.call) for use in uses]

        return await self._store.read(read)
