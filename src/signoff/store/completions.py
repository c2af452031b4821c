"""Stores model replies before their calls are judged, so that a later attempt does not ask the model again."""

from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, bindparam, delete, select

from signoff.contracts.ids import SessionKey
from signoff.store.blobs import Blob, add_blob
from signoff.store.claim_conditions import insert_or_hold
from signoff.store.leases import in_seconds
from signoff.store.store import Also, Store
from signoff.store.tables import COMPLETIONS, time_from_millis

KEPT: Final = timedelta(hours=1)
"""The maximum age of a stored reply.

All attempts of its completion together have ten minutes.
"""
_DROPPED_AT_ONCE: Final = 20

_READ: Final = select(COMPLETIONS.c.body, COMPLETIONS.c.kept_at).where(COMPLETIONS.c.key == bindparam("named"))
_OLD: Final = (
    select(COMPLETIONS.c.key)
    .where(COMPLETIONS.c.kept_at < in_seconds(-KEPT.total_seconds()))
    .limit(_DROPPED_AT_ONCE)
    # Two workers that clean up at the same time must not wait for each other.
    .with_for_update(skip_locked=True)
)
_DROP_OLD: Final = delete(COMPLETIONS).where(COMPLETIONS.c.key.in_(_OLD))


class KeptReply(NamedTuple):
    """A stored model reply."""

    body: bytes
    at: datetime
    """The time of storing, by the store's clock, in UTC."""


class Completions:
    """Reads and writes model replies, by run and completion number (from 1). All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, run: str, number: int) -> KeptReply | None:
        def find(connection: Connection) -> KeptReply | None:
            row = connection.execute(_READ, {"named": _key(run, number)}).first()
            return None if row is None else KeptReply(bytes(row.body), time_from_millis(row.kept_at))

        return await self._store.read(find)

    async def keep(
        self,
        run: str,
        number: int,
        body: bytes,
        place: SessionKey,
        blob: Blob | None = None,
        also: Also | None = None,
    ) -> KeptReply:
        """Return the first attempt's reply, stored together with `blob` and `also`.

        Only `drop_old` deletes replies. An attempt that was considered lost may still arrive, and would otherwise ask
        approvers about the calls of another reply.
        """
        values = {"key": _key(run, number), "body": body}

        def write(connection: Connection) -> KeptReply:
            row = connection.execute(_keep_statement(connection.dialect.name), values).one()
            reply = KeptReply(bytes(row.body), time_from_millis(row.kept_at))
            # Store nothing from an attempt after the first.
            if reply.body == body:
                if blob is not None:
                    add_blob(connection, blob, place)
                if also is not None:
                    also(connection)
            return reply

        return await self._store.run(write)

    async def drop_old(self) -> int:
        """Delete replies older than `KEPT`."""
        dropped = 0
        while True:
            some = await self._store.run(lambda connection: connection.execute(_DROP_OLD).rowcount)
            dropped += some
            # Delete in batches, so that a concurrent `keep` waits for at most one batch.
            if some < _DROPPED_AT_ONCE:
                return dropped


@cache
def _keep_statement(dialect: str) -> Any:
    kept = insert_or_hold(COMPLETIONS, "kept_at", dialect)
    return kept.returning(COMPLETIONS.c.body, COMPLETIONS.c.kept_at)


def _key(run: str, number: int) -> str:
    return f"{run}.{number}"
