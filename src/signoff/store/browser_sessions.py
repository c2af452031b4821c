"""Stores the browser sessions of signed-in people. The cookie is random, and the store keeps only its hash."""

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
"""The lifetime of a sign-in. A session opened with a token also ends with that token."""

_LINK_SCOPES: Final[tuple[Scope, ...]] = ("read", "decide")
"""The rights of a sign-in by an email link: a mailbox starts no agents."""


class BrowserSession(FrozenModel):
    """The browser session of a signed-in person."""

    tenant: str
    person: str
    assurance: Assurance
    """The strength of the sign-in's proof of identity."""
    scopes: tuple[Scope, ...]
    """The permitted actions."""
    token: str = ""
    """The id of the personal token used to sign in, or ""."""
    created_at: datetime
    """The time of the sign-in, in UTC."""
    expires_at: datetime
    """The end of the session, in UTC."""


class StoredSessions:
    """Reads and writes browser sessions. All methods raise `StoreUnavailable`."""

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
        """`cookie` is 32 random bytes never used before.

        Writes `also` in the same transaction. Deletes expired sessions as well.
        """
        end = now + LIFETIME
        session = BrowserSession(
            tenant=tenant,
            person=person,
            assurance=assurance,
            scopes=(_LINK_SCOPES if assurance == "link" else SCOPES) if token is None else token.scopes,
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
        """`None` if the session expired, or if the token that opened it was revoked."""
        query = (
            select(SESSIONS, TOKENS.c.revoked_at)
            # Check the token at each use: revoking it signs out every browser that it opened, at once.
            .outerjoin(TOKENS, TOKENS.c.id == SESSIONS.c.token)
            .where(SESSIONS.c.digest == _digest(cookie), SESSIONS.c.expires_at > millis_from_time(now))
        )
        row = await self._store.read(lambda connection: connection.execute(query).first())
        return None if row is None or row.revoked_at is not None else _session(row)

    async def close(self, cookie: str, *, also: Also | None = None) -> None:
        """If there was a session, write `also` in the same transaction."""

        def end(connection: Connection) -> None:
            result = connection.execute(delete(SESSIONS).where(SESSIONS.c.digest == _digest(cookie)))
            if result.rowcount and also is not None:
                also(connection)

        await self._store.run(end)


def _digest(cookie: str) -> str:
    # No salt and no key stretching: 32 random bytes are in no dictionary. A header may hold text that UTF-8 cannot
    # encode.
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
