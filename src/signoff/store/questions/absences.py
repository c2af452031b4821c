"""Stores the absences of people, one a person. Readers check the signatures."""

from sqlalchemy import Connection, Delete, delete, insert, select

from signoff.contracts.person import Absence
from signoff.store.store import Also, Store
from signoff.store.tables import ABSENCES, millis_from_time


class Absences:
    """Reads and writes absences. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, absence: Absence, also: Also) -> None:
        """Replace the person's absence, together with `also`."""
        row = {
            "tenant": absence.tenant,
            "person": absence.person,
            "until_at": millis_from_time(absence.until),
            "body": absence.model_dump_json(),
        }

        def write(connection: Connection) -> None:
            connection.execute(_removal(absence.tenant, absence.person))
            connection.execute(insert(ABSENCES).values(row))
            also(connection)

        await self._store.run(write)

    async def remove(self, tenant: str, person: str, also: Also) -> bool:
        """Return whether there was one. Only then writes `also`."""

        def write(connection: Connection) -> bool:
            found = connection.execute(_removal(tenant, person)).rowcount == 1
            if found:
                also(connection)
            return found

        return await self._store.run(write)

    async def list_of(self, tenant: str) -> list[Absence]:
        """The soonest return first. Includes ended ones."""
        query = select(ABSENCES.c.body).where(ABSENCES.c.tenant == tenant).order_by(ABSENCES.c.until_at)
        bodies = await self._store.read(lambda connection: connection.scalars(query).all())
        return [Absence.model_validate_json(each) for each in bodies]


def _removal(tenant: str, person: str) -> Delete:
    return delete(ABSENCES).where(ABSENCES.c.tenant == tenant, ABSENCES.c.person == person)
