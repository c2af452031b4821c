"""Stores undeclared people as described by their last sign-in.

Readers decide whether a row counts.
"""

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
    """Reads and writes the vouched people. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, tenant: str, ids: Sequence[str]) -> list[VouchedPerson]:
        """Leaves out people with ended vouching, but includes expired ones."""
        query = _STANDING.where(PEOPLE.c.tenant == tenant, PEOPLE.c.person.in_(ids))
        return await self._store.read(lambda connection: _read(connection.execute(query)))

    async def all(self) -> list[VouchedPerson]:
        """Leaves out people with ended vouching. Oldest first."""
        return await self._store.read(lambda connection: _read(connection.execute(_STANDING)))

    async def end(self, tenant: str, person: str, *, by: str, now: datetime, also: Also | None = None) -> bool:
        """End the vouching until the next sign-in.

        Signs the person out, and returns whether the vouching was valid. `by` is "" if a sign-in changed or removed the
        person's identity. Writes `also` in the same transaction.
        """
        valid = (PEOPLE.c.tenant == tenant, PEOPLE.c.person == person, PEOPLE.c.ended_at.is_(None))

        def write(connection: Connection) -> bool:
            ended = connection.execute(update(PEOPLE).where(*valid).values(ended_by=by, ended_at=millis_from_time(now)))
            if not ended.rowcount:
                return False
            # Use one transaction, so that no browser stays signed in after the vouching has ended.
            connection.execute(delete(SESSIONS).where(SESSIONS.c.tenant == tenant, SESSIONS.c.person == person))
            if also is not None:
                also(connection)
            return True

        return await self._store.run(write)


def vouched_writer(vouched: VouchedPerson) -> Also:
    """The write also deletes expired rows."""
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
    people: list[VouchedPerson] = []
    for row in rows:
        try:
            vouched = VouchedPerson.model_validate_json(row.body)
        except ValidationError:
            _log.warning("the stored row of the person %r was not written by the gateway", row.person)
            continue
        # An attacker who can write rows could store one person's body under another's name.
        if (vouched.person.tenant, vouched.person.id) == (row.tenant, row.person):
            people.append(vouched)
    return people
