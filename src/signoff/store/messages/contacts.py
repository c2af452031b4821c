"""Stores where people of a vendor can be written to."""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, select, update

from signoff.store.claim_conditions import insert_new
from signoff.store.store import Store
from signoff.store.tables import CONTACTS, StoreClock


class ChannelContacts:
    """Reads and writes the contacts of one channel. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store, channel: str) -> None:
        self._store = store
        self._channel = channel

    async def find(self, identity: str) -> dict[str, Any] | None:
        query = select(CONTACTS.c.content).where(*self._of(identity))
        found = await self._store.read(lambda connection: connection.execute(query).scalar())
        return None if found is None else json.loads(found)

    async def keep(self, contacts: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Replace the handles of identities. None deletes a contact."""

        def write(connection: Connection) -> None:
            # In a fixed order, so that two writers of the same contacts do not wait for each other.
            for identity, handle in sorted(contacts.items()):
                self._write(connection, identity, handle)

        await self._store.run(write)

    def _write(self, connection: Connection, identity: str, handle: Mapping[str, Any] | None) -> None:
        if handle is None:
            connection.execute(delete(CONTACTS).where(*self._of(identity)))
            return
        content = json.dumps(handle, sort_keys=True)
        key = {"channel": self._channel, "identity": identity}
        if not insert_new(connection, CONTACTS, {**key, "content": content}):
            changed = update(CONTACTS).where(*self._of(identity), CONTACTS.c.content != content)
            connection.execute(changed.values(content=content, noted_at=StoreClock()))

    def _of(self, identity: str) -> tuple[Any, ...]:
        return CONTACTS.c.channel == self._channel, CONTACTS.c.identity == identity
