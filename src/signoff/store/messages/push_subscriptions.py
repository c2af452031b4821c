"""Stores the browsers that show people's notifications."""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, select

from signoff.contracts.limits import BROWSERS_OF_ONE
from signoff.contracts.person import PushSubscription
from signoff.store.claim_conditions import hold_tenant
from signoff.store.store import Also, Store
from signoff.store.tables import PUSH_SUBSCRIPTIONS, time_from_millis

_BROWSERS = PUSH_SUBSCRIPTIONS.c


class KnownBrowser(NamedTuple):
    """A browser that shows a person's notifications."""

    subscription: PushSubscription
    added_at: datetime
    """By the store's clock, in UTC."""


class PushSubscriptions:
    """Reads and writes these browsers. All methods raise `StoreUnavailable`.

    `key` is the installation's public key. A browser that was added for another key is not found.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_of(self, tenant: str, person: str, key: str) -> list[PushSubscription]:
        return [each.subscription for each in await self.list_known(tenant, person, key)]

    async def list_known(self, tenant: str, person: str, key: str) -> list[KnownBrowser]:
        """Oldest first."""
        query = (
            select(_BROWSERS.body, _BROWSERS.added_at)
            .where(_of(tenant, person), _BROWSERS.key == key)
            .order_by(_BROWSERS.added_at, _BROWSERS.id)
        )

        def read(connection: Connection) -> list[KnownBrowser]:
            rows = connection.execute(query).all()
            return [
                KnownBrowser(PushSubscription.model_validate_json(row.body), time_from_millis(row.added_at))
                for row in rows
            ]

        return await self._store.read(read)

    async def find_people(self, tenant: str, key: str) -> frozenset[str]:
        """Return the ids of a tenant's people with a browser."""
        query = select(_BROWSERS.person).where(_BROWSERS.tenant == tenant, _BROWSERS.key == key).distinct()
        return await self._store.read(lambda connection: frozenset(connection.scalars(query)))

    async def add(self, tenant: str, person: str, key: str, subscription: PushSubscription, also: Also) -> bool:
        """Add a browser, together with `also`. Return False if the person has too many.

        Removes the browser from its earlier person, and the person's browsers of other keys.
        """
        same = and_(_BROWSERS.id == subscription.id, _BROWSERS.body == subscription.model_dump_json())
        outdated = and_(_of(tenant, person), _BROWSERS.key != key)
        again = and_(_of(tenant, person), _BROWSERS.id == subscription.id)
        count = select(func.count()).select_from(PUSH_SUBSCRIPTIONS).where(_of(tenant, person))
        row = {"tenant": tenant, "person": person, "id": subscription.id, "key": key}

        def write(connection: Connection) -> bool:
            # Lock: two browsers at once must not exceed the limit.
            hold_tenant(connection, tenant)
            # An equal endpoint alone proves nothing: another person may have seen it.
            connection.execute(delete(PUSH_SUBSCRIPTIONS).where(same))
            connection.execute(delete(PUSH_SUBSCRIPTIONS).where(outdated))
            connection.execute(delete(PUSH_SUBSCRIPTIONS).where(again))
            if (connection.scalar(count) or 0) >= BROWSERS_OF_ONE:
                return False
            connection.execute(insert(PUSH_SUBSCRIPTIONS).values(**row, body=subscription.model_dump_json()))
            also(connection)
            return True

        return await self._store.run(write)

    async def remove(self, tenant: str, person: str, name: str, also: Also) -> bool:
        """Remove one of the person's browsers. Return whether there was one. Only then writes `also`."""
        mine = delete(PUSH_SUBSCRIPTIONS).where(_of(tenant, person), _BROWSERS.id == name)

        def write(connection: Connection) -> bool:
            found = connection.execute(mine).rowcount == 1
            if found:
                also(connection)
            return found

        return await self._store.run(write)

    async def forget(self, tenant: str, person: str, subscription: PushSubscription) -> None:
        """Remove a browser that its push service no longer knows."""
        # Compare the body: the browser may just have been added again with other keys.
        gone = and_(_of(tenant, person), _BROWSERS.body == subscription.model_dump_json())
        await self._store.run(lambda connection: connection.execute(delete(PUSH_SUBSCRIPTIONS).where(gone)).close())


def _of(tenant: str, person: str) -> ColumnElement[bool]:
    return and_(_BROWSERS.tenant == tenant, _BROWSERS.person == person)
