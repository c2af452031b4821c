"""Stores undeclared people as their last sign-in described them. Rows only: the reader judges whether one counts."""

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, Row, delete, select, update

from signoff.people.vouched_directory import VouchedPerson
from signoff.store.claim_conditions import insert_new
from signoff.store.store import Also, Store
from signoff.store.tables import PEOPLE, SESSIONS, millis_from_time

_log = logging.getLogger(__name__)
_STANDING = select(PEOPLE).where(PEOPLE.c.ended_at.is_(None)).order_by(PEOPLE.c.seen_at, PEOPLE.c.person)


class VouchedPeople:
    """Reads and writes the vouched people of a store. All methods raise `StoreUnavailable` when the database fails."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, tenant: str, ids: Sequence[str]) -> list[VouchedPerson]:
        """Returns the rows of those of these `ids` whose vouching was not ended, expired or not."""
        query = _STANDING.where(PEOPLE.c.tenant == tenant, PEOPLE.c.person.in_(ids))
        return await self._store.read(lambda connection: _read(connection.execute(query)))

    async def all(self) -> list[VouchedPerson]:
        """Returns everybody whose vouching was not ended, the earliest first."""
        return await self._store.read(lambda connection: _read(connection.execute(_STANDING)))

    async def end(self, tenant: str, person: str, *, by: str, now: datetime, also: Also | None = None) -> bool:
        """Ends the vouching for a person and signs them out, until they sign in again; returns whether it was in force.

        `by` is who ended it, "" for a sign-in that made somebody else of them, or nobody. `also` is written in the same
        transaction.
        """
        standing = (PEOPLE.c.tenant == tenant, PEOPLE.c.person == person, PEOPLE.c.ended_at.is_(None))

        def write(connection: Connection) -> bool:
            ended = connection.execute(
                update(PEOPLE).where(*standing).values(ended_by=by, ended_at=millis_from_time(now))
            )
            if not ended.rowcount:
                return False
            # In one transaction: nobody whose word was ended goes on with a browser that is still signed in.
            connection.execute(delete(SESSIONS).where(SESSIONS.c.tenant == tenant, SESSIONS.c.person == person))
            if also is not None:
                also(connection)
            return True

        return await self._store.run(write)


def vouched_writer(vouched: VouchedPerson) -> Also:
    """Returns a write that replaces a person's row by what a sign-in said, and deletes expired rows."""
    person, seen = vouched.person, millis_from_time(vouched.seen_at)
    row = {
        "tenant": person.tenant,
        "person": person.id,
        "body": vouched.model_dump_json(exclude_defaults=True),
        "seen_at": seen,
        "until": millis_from_time(vouched.until),
        "ended_by": None,
        "ended_at": None,
    }
    own = (PEOPLE.c.tenant == person.tenant, PEOPLE.c.person == person.id)

    def write(connection: Connection) -> None:
        connection.execute(delete(PEOPLE).where(PEOPLE.c.until <= seen))
        if not connection.execute(update(PEOPLE).where(*own).values(**row)).rowcount:
            insert_new(connection, PEOPLE, row)

    return write


def _read(rows: Iterable[Row[Any]]) -> list[VouchedPerson]:
    found: list[VouchedPerson] = []
    for row in rows:
        try:
            vouched = VouchedPerson.model_validate_json(row.body)
        except ValidationError:
            _log.warning("what the store has of the person %r is nothing that the gateway wrote", row.person)
            continue
        # Who can write rows could file one person's under another's name.
        if (vouched.person.tenant, vouched.person.id) == (row.tenant, row.person):
            found.append(vouched)
    return found
