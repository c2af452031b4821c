"""Stores which person has taken a request in a room. It informs others, and gives or takes no right."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, delete, select

from signoff.contracts.frozen_model import FrozenModel
from signoff.store.claim_conditions import insert_new
from signoff.store.leases import in_seconds
from signoff.store.store import Also, Store
from signoff.store.tables import TAKEN_REQUESTS, time_from_millis

TAKEN_FOR: Final = timedelta(minutes=15)
"""After this time a request is free again."""
_HELD: Final = TAKEN_REQUESTS.c.taken_at > select(in_seconds(-TAKEN_FOR.total_seconds())).scalar_subquery()


class TakenRequest(FrozenModel):
    """A request that a person has taken. Times are by the store's clock, in UTC."""

    approval: str
    tenant: str
    person: str
    taken_at: datetime

    @property
    def lapses_at(self) -> datetime:
        """The end, when the request is free again."""
        return self.taken_at + TAKEN_FOR


class Taking(NamedTuple):
    """The result of an attempt to take a request."""

    holder: TakenRequest
    """The holder after the attempt, perhaps another person."""
    is_new: bool
    """Whether this attempt took it."""


class TakenRequests:
    """Reads and writes taken requests. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def take(self, approval: str, tenant: str, person: str, also: Callable[[TakenRequest], Also]) -> Taking:
        """Take a free request. Only then writes `also`, for the new row.

        A person who has it already does not get more time.
        """
        ours = (TAKEN_REQUESTS.c.approval == approval, TAKEN_REQUESTS.c.tenant == tenant)
        row = {"approval": approval, "tenant": tenant, "person": person}

        def write(connection: Connection) -> Taking:
            connection.execute(delete(TAKEN_REQUESTS).where(*ours, ~_HELD))
            while True:
                is_new = insert_new(connection, TAKEN_REQUESTS, row)
                held = connection.execute(select(TAKEN_REQUESTS).where(*ours)).first()
                # Its holder may have released it since the insert.
                if held is not None:
                    break
            if is_new:
                also(_taken(held))(connection)
            return Taking(_taken(held), is_new)

        return await self._store.run(write)

    async def release(self, approval: str, tenant: str, person: str, also: Also) -> bool:
        """Return whether the person had it. Only then writes `also`."""
        ours = (TAKEN_REQUESTS.c.approval == approval, TAKEN_REQUESTS.c.tenant == tenant)
        mine = (*ours, TAKEN_REQUESTS.c.person == person, _HELD)

        def write(connection: Connection) -> bool:
            released = connection.execute(delete(TAKEN_REQUESTS).where(*mine)).rowcount == 1
            if released:
                also(connection)
            return released

        return await self._store.run(write)

    async def find(self, tenant: str, approvals: Sequence[str]) -> dict[str, TakenRequest]:
        """Return the taken ones of a tenant's requests, by their ids."""
        if not approvals:
            return {}
        query = select(TAKEN_REQUESTS).where(
            TAKEN_REQUESTS.c.approval.in_(approvals),
            TAKEN_REQUESTS.c.tenant == tenant,
            _HELD,
        )
        rows = await self._store.read(lambda connection: connection.execute(query).all())
        return {row.approval: _taken(row) for row in rows}

    async def list_of(self, tenant: str) -> dict[str, TakenRequest]:
        """Return all taken requests of a tenant, by their ids. There are few: each lapses soon."""
        query = select(TAKEN_REQUESTS).where(TAKEN_REQUESTS.c.tenant == tenant, _HELD)
        rows = await self._store.read(lambda connection: connection.execute(query).all())
        return {row.approval: _taken(row) for row in rows}

    async def sweep(self) -> int:
        """Delete lapsed rows. Returns their number."""
        lapsed = delete(TAKEN_REQUESTS).where(~_HELD)
        return await self._store.run(lambda connection: connection.execute(lapsed).rowcount)


def _taken(row: Row[Any]) -> TakenRequest:
    taken_at = time_from_millis(row.taken_at)
    return TakenRequest(approval=row.approval, tenant=row.tenant, person=row.person, taken_at=taken_at)
