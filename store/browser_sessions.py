"""Browser sessions of people who signed in. The cookie is a random value; the store keeps its hash."""

import hashlib
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Row, delete, insert, select

from signoff.contracts.decision import Assurance
from signoff.contracts.frozen_model import Shape
from signoff.store.store import Also, Store
from signoff.store.tables import SESSIONS, TOKENS
from signoff.store.tokens import SCOPES, Scope, Token, millis, moment_of

LIFETIME: Final = timedelta(hours=12)
"""How long a sign-in lasts; one by a token not longer than the token."""


class Session(Shape):
    """Who signed in at a browser, and how. `token` is the id of the personal token that was pasted, or empty."""

    tenant: str
    person: str
    assurance: Assurance
    scopes: tuple[Scope, ...]
    token: str = ""
    created_at: datetime
    expires_at: datetime


class Sessions:
    """The sessions in a store. All methods raise `StoreUnavailable` when the database fails."""

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
    ) -> Session:
        """A session for a browser that holds `cookie`, a secret of 32 random bytes that was never used before.

        `also` is written with it. Sessions that are over are forgotten on the way.
        """
        end = now + LIFETIME
        session = Session(
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
            "created_at": millis(session.created_at),
            "expires_at": millis(session.expires_at),
        }

        def begin(connection: Connection) -> None:
            connection.execute(delete(SESSIONS).where(SESSIONS.c.expires_at <= millis(now)))
            connection.execute(insert(SESSIONS).values(**row))
            if also is not None:
                also(connection)

        await self._store.run(begin)
        return session

    async def known(self, cookie: str, now: datetime) -> Session | None:
        """The session of this cookie, unless it is over or the token that opened it was revoked."""
        query = (
            select(SESSIONS, TOKENS.c.revoked_at)
            # Asked at each use: who revokes a token signs out every browser that it opened, at once.
            .outerjoin(TOKENS, TOKENS.c.id == SESSIONS.c.token)
            .where(SESSIONS.c.digest == _digest(cookie), SESSIONS.c.expires_at > millis(now))
        )
        row = await self._store.run(lambda connection: connection.execute(query).first())
        return None if row is None or row.revoked_at is not None else _session(row)

    async def close(self, cookie: str, *, also: Also | None = None) -> None:
        """Sign out. `also` is written with the end of a session that there was."""

        def end(connection: Connection) -> None:
            gone = connection.execute(delete(SESSIONS).where(SESSIONS.c.digest == _digest(cookie)))
            if gone.rowcount and also is not None:
                also(connection)

        await self._store.run(end)


def _digest(cookie: str) -> str:
    # Neither salt nor stretching: no dictionary holds 32 random bytes. A header may hold what UTF-8 cannot.
    return hashlib.sha256(cookie.encode(errors="replace")).hexdigest()


def _session(row: Row[Any]) -> Session:
    return Session(
        tenant=row.tenant,
        person=row.person,
        assurance=row.assurance,
        scopes=tuple(row.scopes.split()),
        token=row.token,
        created_at=moment_of(row.created_at),
        expires_at=moment_of(row.expires_at),
    )
