"""Stores people's passkeys, and the single-use nonces of challenges for them."""

import hashlib
from typing import Final, Literal, NamedTuple

from sqlalchemy import Connection, and_, delete, func, insert, select, update

from signoff.contracts.decision import Passkey
from signoff.keys.signature_form import new_nonce
from signoff.store.claim_conditions import hold_tenant, insert_new
from signoff.store.store import Also, Store
from signoff.store.tables import PASSKEY_CHALLENGES, PASSKEYS, StoreClock

CHALLENGE_SECONDS: Final = 300
OPEN_CHALLENGES: Final = 20
"""Challenges of one person at a time. A new one ends all others if there are more."""
_MILLIS: Final = 1_000


AddProblem = Literal["", "used", "old", "cloned", "known"]
"""Why a passkey was not added: its challenge is not open, it lacks an old passkey's permission, the counter of that one
did not grow, or its credential is registered.
"""


class KnownPasskey(NamedTuple):
    """A registered passkey."""

    passkey: Passkey
    used_at: int | None
    """The last use by the store's clock, in milliseconds since 1970. `None`: never."""


class Passkeys:
    """Reads and writes passkeys. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_of(self, tenant: str, person: str) -> list[KnownPasskey]:
        """Oldest first."""
        query = (
            select(PASSKEYS.c.body, PASSKEYS.c.used_at)
            .where(PASSKEYS.c.tenant == tenant, PASSKEYS.c.person == person)
            .order_by(PASSKEYS.c.added_at, PASSKEYS.c.id)
        )

        def read(connection: Connection) -> list[KnownPasskey]:
            rows = connection.execute(query).all()
            return [KnownPasskey(Passkey.model_validate_json(row.body), row.used_at) for row in rows]

        return await self._store.read(read)

    async def make_nonce(self, tenant: str, person: str) -> str:
        """Return the nonce of a new challenge for a person. Deletes expired ones."""
        nonce = new_nonce()
        mine = and_(PASSKEY_CHALLENGES.c.tenant == tenant, PASSKEY_CHALLENGES.c.person == person)
        count = select(func.count()).select_from(PASSKEY_CHALLENGES).where(mine)

        def write(connection: Connection) -> None:
            expired = PASSKEY_CHALLENGES.c.made_at <= StoreClock() - CHALLENGE_SECONDS * _MILLIS
            connection.execute(delete(PASSKEY_CHALLENGES).where(expired))
            if (connection.scalar(count) or 0) >= OPEN_CHALLENGES:
                connection.execute(delete(PASSKEY_CHALLENGES).where(mine))
            connection.execute(
                insert(PASSKEY_CHALLENGES).values(nonce=nonce, tenant=tenant, person=person, made_at=StoreClock())
            )

        await self._store.run(write)
        return nonce

    async def add(
        self, passkey: Passkey, counter: int, nonce: str, *, by: tuple[Passkey, int] | None, also: Also
    ) -> AddProblem:
        """Add a passkey by the challenge of `nonce`, if that is open. Return why it was not added, or "".

        `by` is the old passkey that permits it, with its new counter. `None`: it is the person's first. Writes `also`
        in the same transaction.
        """
        mine = (PASSKEYS.c.tenant == passkey.tenant, PASSKEYS.c.person == passkey.person)

        def write(connection: Connection) -> AddProblem:
            # Lock: of two first passkeys of one person, the second needs the first.
            hold_tenant(connection, passkey.tenant)
            if not use_nonce(connection, nonce, passkey.tenant, passkey.person):
                return "used"
            first = connection.execute(select(PASSKEYS.c.id).where(*mine).limit(1)).first() is None
            if first != (by is None):
                return "old"
            if by is not None and not raise_counter(connection, *by):
                return "cloned"
            values = {
                "id": _id_of(passkey.credential),
                "tenant": passkey.tenant,
                "person": passkey.person,
                "body": passkey.model_dump_json(),
                "counter": counter,
            }
            added = insert_new(connection, PASSKEYS, values)
            if not added:
                return "known"
            also(connection)
            return ""

        return await self._store.run(write)


def use_nonce(connection: Connection, nonce: str, tenant: str, person: str) -> bool:
    """Return False if the person has no such open challenge, or has used it."""
    used = delete(PASSKEY_CHALLENGES).where(
        PASSKEY_CHALLENGES.c.nonce == nonce,
        PASSKEY_CHALLENGES.c.tenant == tenant,
        PASSKEY_CHALLENGES.c.person == person,
        PASSKEY_CHALLENGES.c.made_at > StoreClock() - CHALLENGE_SECONDS * _MILLIS,
    )
    return connection.execute(used).rowcount == 1


def raise_counter(connection: Connection, passkey: Passkey, counter: int) -> bool:
    """Return False if the counter of a registered passkey does not grow, as that of a copy. 0 means no counter."""
    grows = PASSKEYS.c.counter < counter if counter else PASSKEYS.c.counter == 0
    change = (
        update(PASSKEYS)
        .where(PASSKEYS.c.id == _id_of(passkey.credential), grows)
        .values(counter=counter, used_at=StoreClock())
    )
    return connection.execute(change).rowcount == 1


def _id_of(credential: str) -> str:
    return hashlib.sha256(credential.encode()).hexdigest()
