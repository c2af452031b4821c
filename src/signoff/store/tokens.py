"""Stores personal API tokens: random, scoped, expiring.

The store keeps only their hashes and never shows a token again.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, Literal, get_args

from sqlalchemy import Connection, Row, insert, select, update

from signoff.contracts.errors import NotFound, Refused, StoreUnavailable
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.names import PEER
from signoff.store.store import Also, Store
from signoff.store.tables import TOKENS, millis_from_time, time_from_millis

Scope = Literal["read", "decide", "start", "peer", "call"]
SCOPES: Final[tuple[Scope, ...]] = ("read", "decide", "start")
"""The scopes of a person's token: read, answer requests, start and stop turns.

None implies another.
"""
CALL: Final = "call"
"""The only scope of an external agent's token.

Such an agent proposes calls, uses their permits and reports.
"""
ACTOR: Final = "actor:"
"""Prefix of the holder of an external agent's token. A person's id contains no colon."""
PREFIX: Final = "sgf_"
TOKEN_BYTES: Final = 32
ID_CHARS: Final = 12
LONGEST: Final = timedelta(days=366)
SEEN_EVERY: Final = timedelta(minutes=1)
"""Precision of a token's last use.

Recording every use would cost a write for each request.
"""
NOTED_SECONDS: Final = 0.25
"""How long a request waits for the recording of its token's use, in seconds."""


class Token(FrozenModel):
    """A personal token without its secret. Times are the gateway's, in UTC."""

    id: str
    """The first characters of the token's hash."""
    tenant: str
    person: str
    """The person's id, or `actor:<name>` for an external agent's token."""
    scopes: tuple[Scope, ...]
    """The permitted actions."""
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None = None
    """The time of the last use."""
    revoked_at: datetime | None = None

    @property
    def agent(self) -> str:
        """The name of the token's external agent, or "" for a person's token."""
        return self.person.removeprefix(ACTOR) if self.person.startswith(ACTOR) else ""


class Tokens:
    """Reads and writes the tokens in a store. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._noting: set[asyncio.Task[None]] = set()

    async def create(
        self,
        tenant: str,
        person: str,
        scopes: Iterable[Scope],
        *,
        lifetime: timedelta,
        now: datetime,
        also: Callable[[Token], Also] | None = None,
    ) -> tuple[str, Token]:
        """Return the secret, which cannot be read again, and the stored data.

        Writes the result of `also` in the same transaction. Raises `Refused` without a scope, or for a lifetime that is
        not positive or exceeds 366 days.
        """
        wanted = set(scopes)
        ordered = tuple(scope for scope in get_args(Scope) if scope in wanted)
        if PEER in wanted and len(wanted) > 1:
            # With another scope the agent could read, start or decide things to which it was never exposed.
            raise Refused(f"the scope `{PEER}` excludes all others: it is for other agents", code="malformed")
        # All other routes would treat an agent that can also read or decide as a person.
        if (CALL in wanted or person.startswith(ACTOR)) and (wanted != {CALL} or not person.startswith(ACTOR)):
            why = (
                f"the scope `{CALL}` is only for external agents, and they have no other; create a token with it alone"
            )
            raise Refused(why, code="malformed")
        if not ordered:
            raise Refused(f"a token needs a scope: {', '.join(f'`{scope}`' for scope in SCOPES)}", code="malformed")
        if not timedelta(0) < lifetime <= LONGEST:
            raise Refused(f"a token's lifetime must be positive and at most {LONGEST.days} days", code="malformed")
        secret = PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
        digest = _digest(secret)
        token = Token(
            id=digest[:ID_CHARS],
            tenant=tenant,
            person=person,
            scopes=ordered,
            created_at=now,
            expires_at=now + lifetime,
        )
        row = {
            "id": token.id,
            "digest": digest,
            "tenant": tenant,
            "person": person,
            "scopes": " ".join(ordered),
            "created_at": millis_from_time(now),
            "expires_at": millis_from_time(token.expires_at),
        }

        def keep(connection: Connection) -> None:
            connection.execute(insert(TOKENS).values(**row))
            if also is not None:
                also(token)(connection)

        await self._store.run(keep)
        return secret, token

    async def authenticate(self, secret: str, now: datetime) -> Token:
        """Records the use. Raises `Refused` (`unauthenticated`) for an invalid secret."""
        digest = _digest(secret)

        def read(connection: Connection) -> Token | None:
            # Look it up by its visible start, then compare the whole digest in constant time.
            row = connection.execute(select(TOKENS).where(TOKENS.c.id == digest[:ID_CHARS])).first()
            if row is None or not hmac.compare_digest(row.digest, digest):
                return None
            return _token(row)

        token = await self._store.read(read)
        if token is None:
            raise Refused("this token is not known here; make one with `signoff token create`", code="unauthenticated")
        if problem := _over(token, now):
            raise Refused(problem, code="unauthenticated")
        # Do not record the use of an invalid token. A busy token takes SQLite's lock at most once a minute.
        if token.used_at is None or now - token.used_at >= SEEN_EVERY:
            await self._note_use(token, now)
        return token

    async def _note_use(self, token: Token, now: datetime) -> None:
        """Never blocks the request if the store is not writable."""
        change = update(TOKENS).where(TOKENS.c.id == token.id).values(used_at=millis_from_time(now))

        async def write() -> None:
            # The next request records its own use.
            with suppress(StoreUnavailable):
                await self._store.run(lambda connection: connection.execute(change).close())

        noting = asyncio.create_task(write())
        self._noting.add(noting)
        noting.add_done_callback(self._noting.discard)
        await asyncio.wait({noting}, timeout=NOTED_SECONDS)

    async def all(self, tenant: str) -> list[Token]:
        """Newest first, including expired and revoked tokens."""
        query = select(TOKENS).where(TOKENS.c.tenant == tenant).order_by(TOKENS.c.created_at.desc(), TOKENS.c.id)
        return await self._store.read(lambda connection: [_token(row) for row in connection.execute(query)])

    async def revoke(
        self, token_id: str, tenant: str, now: datetime, *, also: Callable[[Token], Also] | None = None
    ) -> Token:
        """Ends all sessions opened with the token.

        Revoking it again changes nothing. Unless it was revoked before, writes the result of `also` in the same
        transaction. Raises `NotFound`.
        """
        found = (TOKENS.c.id == token_id) & (TOKENS.c.tenant == tenant)

        def end(connection: Connection) -> Token | None:
            mark = update(TOKENS).where(found, TOKENS.c.revoked_at.is_(None)).values(revoked_at=millis_from_time(now))
            result = connection.execute(mark)
            row = connection.execute(select(TOKENS).where(found)).first()
            token = None if row is None else _token(row)
            if token is not None and result.rowcount and also is not None:
                also(token)(connection)
            return token

        token = await self._store.run(end)
        if token is None:
            raise NotFound(f"there is no token `{token_id[:40]}`; `signoff token list` shows those there are")
        return token


def _digest(secret: str) -> str:
    # A plain hash: stretching protects secrets that people invent, and would cost time for every request. These are 32
    # random bytes.
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _over(token: Token, now: datetime) -> str:
    if token.revoked_at is not None:
        return "this token was revoked; create another with `signoff token create`"
    if now >= token.expires_at:
        return f"this token expired on {token.expires_at:%Y-%m-%d}; create another with `signoff token create`"
    return ""


def _token(row: Row[Any]) -> Token:
    return Token(
        id=row.id,
        tenant=row.tenant,
        person=row.person,
        scopes=tuple(row.scopes.split()),
        created_at=time_from_millis(row.created_at),
        expires_at=time_from_millis(row.expires_at),
        used_at=None if row.used_at is None else time_from_millis(row.used_at),
        revoked_at=None if row.revoked_at is None else time_from_millis(row.revoked_at),
    )
