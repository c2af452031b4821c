"""Stores the browser sessions of people who signed in. The cookie is a random value; the store keeps only its hash."""

import hashlib
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Row, delete, insert, select

from signoff.contracts.decision import Assurance
from signoff.contracts.frozen_model import FrozenModel
from signoff.store.store import Also, Store
from signoff.store.tables import SESSIONS, TOKENS, millis_from_time, time_from_millis
from signoff.store.tokens import SCOPES, Scope, Token

LIFETIME: Final = timedelta(hours=12)
"""How long a sign-in lasts; one by a token not longer than the token."""


class BrowserSession(FrozenModel):
    """The session of a person who signed in at a browser."""

    tenant: str
    """The person's tenant."""
    person: str
    """The person's id."""
    assurance: Assurance
    """How strongly the sign-in proved who the person is."""
    scopes: tuple[Scope, ...]
    """What the session may do."""
    token: str = ""
    """The id of the personal token that was pasted to sign in, or ""."""
    created_at: datetime
    """When the person signed in, in UTC."""
    expires_at: datetime
    """When the session ends, in UTC."""


class StoredSessions:
    """Reads and writes the browser sessions of a store. All methods raise `StoreUnavailable` when the database
    fails.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def open(
        self,
        cookie: str,
        *,
        tenant: str,
        person: str,
        assurance: Assurance,
        now: datetime,
        token: Token | None = None,
        also: Also | None = None,
    ) -> BrowserSession:
        """Opens a session for a browser that holds `cookie`, a secret of 32 random bytes that was never used before.

        `also` is written in the same transaction. Expired sessions are deleted on the way.
        """
        end = now + LIFETIME
        session = BrowserSession(
            tenant=tenant,
            person=person,
            assurance=assurance,
            scopes=SCOPES if token is None else token.scopes,
            token="" if token is None else token.id,
            created_at=now,
            expires_at=end if token is None else min(end, token.expires_at),
        )
        row = session.model_dump() | {
            "digest": _digest(cookie),
            "scopes": " ".join(session.scopes),
            "created_at": millis_from_time(session.created_at),
            "expires_at": millis_from_time(session.expires_at),
        }

        def begin(connection: Connection) -> None:
            connection.execute(delete(SESSIONS).where(SESSIONS.c.expires_at <= millis_from_time(now)))
            connection.execute(insert(SESSIONS).values(**row))
            if also is not None:
                also(connection)

        await self._store.run(begin)
        return session

    async def find(self, cookie: str, now: datetime) -> BrowserSession | None:
        """Returns the session of this cookie, or None when it has expired or the token that opened it was revoked."""
        query = (
            select(SESSIONS, TOKENS.c.revoked_at)
            # Asked at each use: who revokes a token signs out every browser that it opened, at once.
            .outerjoin(TOKENS, TOKENS.c.id == SESSIONS.c.token)
            .where(SESSIONS.c.digest == _digest(cookie), SESSIONS.c.expires_at > millis_from_time(now))
        )
        row = await self._store.read(lambda connection: connection.execute(query).first())
        return None if row is None or row.revoked_at is not None else _session(row)

    async def close(self, cookie: str, *, also: Also | None = None) -> None:
        """Ends the session of this cookie. `also` is written in the same transaction, if there was a session."""

        def end(connection: Connection) -> None:
            gone = connection.execute(delete(SESSIONS).where(SESSIONS.c.digest == _digest(cookie)))
            if gone.rowcount and also is not None:
                also(connection)

        await self._store.run(end)


def _digest(cookie: str) -> str:
    # Neither salt nor stretching: no dictionary holds 32 random bytes. A header may hold what UTF-8 cannot.
    return hashlib.sha256(cookie.encode(errors="replace")).hexdigest()


def _session(row: Row[Any]) -> BrowserSession:
    return BrowserSession(
        tenant=row.tenant,
        person=row.person,
        assurance=row.assurance,
        scopes=tuple(row.scopes.split()),
        token=row.token,
        created_at=time_from_millis(row.created_at),
        expires_at=time_from_millis(row.expires_at),
    )
