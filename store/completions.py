"""What models answered, kept before its calls are judged: an attempt that comes after finds it and asks nobody."""

from datetime import timedelta
from typing import Final

from sqlalchemy import Connection, bindparam, delete, select

from signoff.store.claim_conditions import added
from signoff.store.leases import in_seconds
from signoff.store.store import Blob, Store, add_blob
from signoff.store.tables import COMPLETIONS

KEPT: Final = timedelta(hours=1)
"""For how long a reply is kept at most: all attempts of its completion together have ten minutes."""
_DROPPED_AT_ONCE: Final = 20

_READ: Final = select(COMPLETIONS.c.body).where(COMPLETIONS.c.key == bindparam("named"))
_DROP: Final = delete(COMPLETIONS).where(COMPLETIONS.c.key == bindparam("named"))
_OLD: Final = (
    select(COMPLETIONS.c.key)
    .where(COMPLETIONS.c.kept_at < in_seconds(-KEPT.total_seconds()))
    .limit(_DROPPED_AT_ONCE)
    # Two workers that clean up at the same time must not wait for each other.
    .with_for_update(skip_locked=True)
)
_DROP_OLD: Final = delete(COMPLETIONS).where(COMPLETIONS.c.key.in_(_OLD))


class Completions:
    """The replies of a store, by run and number of the completion (from 1). All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, run: str, number: int) -> bytes | None:
        """The reply that an earlier attempt kept, or None."""
        found = await self._store.run(lambda connection: connection.scalar(_READ, {"named": _key(run, number)}))
        return None if found is None else bytes(found)

    async def keep(self, run: str, number: int, body: bytes, blob: Blob | None = None) -> bytes:
        """Keep a reply, and `blob` with it; returns the one that is kept, which is the first of all attempts.

        The reply of the completion before goes with it, and a few that are older than `KEPT`.
        """

        def write(connection: Connection) -> bytes:
            named = _key(run, number)
            if not added(connection, COMPLETIONS, {"key": named, "body": body}):
                return bytes(connection.execute(_READ, {"named": named}).scalar_one())
            if blob is not None:
                add_blob(connection, blob)
            if number > 1:
                connection.execute(_DROP, {"named": _key(run, number - 1)})
            connection.execute(_DROP_OLD)
            return body

        return await self._store.run(write)


def _key(run: str, number: int) -> str:
    return f"{run}.{number}"
