"""Stores the open links of sign-ins by email. A link is random, used once, and works in the browser that asked."""

import hashlib
import secrets
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select

from signoff.store.store import Store
from signoff.store.tables import SIGN_IN_LINKS, StoreClock

LINK_MILLIS: Final = 600_000
OPEN_LINKS: Final = 3
"""Open links of one person in one browser: a stranger's requests must not use them up."""
ALL_OPEN_LINKS: Final = 12
"""Open links of one person."""
_C: Final = SIGN_IN_LINKS.c


class SignInLink(NamedTuple):
    """A person to sign in, and the page to open then."""

    tenant: str
    person: str
    next: str


class SignInLinks:
    """All methods raise `StoreUnavailable`. `browser` is the secret of the asking browser."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def make(self, link: SignInLink, browser: str) -> str | None:
        """Return a new link, or `None` if the person has too many open ones. Deletes expired links."""
        name = secrets.token_urlsafe(32)
        row = {"link": _digest(name), "browser": _digest(browser), **link._asdict()}

        def write(connection: Connection) -> bool:
            connection.execute(delete(SIGN_IN_LINKS).where(_C.made_at <= StoreClock() - LINK_MILLIS))
            mine = (_C.tenant == link.tenant, _C.person == link.person)
            here = func.count().filter(_C.browser == row["browser"])
            own, every = connection.execute(select(here, func.count()).select_from(SIGN_IN_LINKS).where(*mine)).one()
            may = own < OPEN_LINKS and every < ALL_OPEN_LINKS
            if may:
                connection.execute(insert(SIGN_IN_LINKS).values(**row, made_at=StoreClock()))
            return bool(may)

        return name if await self._store.run(write) else None

    async def find(self, name: str, browser: str) -> SignInLink | None:
        """Return an open link of this browser without using it."""
        query = select(_C.tenant, _C.person, _C.next).where(*_open(name, browser))
        row = await self._store.read(lambda connection: connection.execute(query).first())
        return None if row is None else SignInLink(*row)

    async def use(self, name: str, browser: str) -> SignInLink | None:
        """Use up an open link of this browser, once among parallel uses."""
        used = delete(SIGN_IN_LINKS).where(*_open(name, browser)).returning(_C.tenant, _C.person, _C.next)
        row = await self._store.run(lambda connection: connection.execute(used).first())
        return None if row is None else SignInLink(*row)


def _open(name: str, browser: str) -> tuple[ColumnElement[bool], ...]:
    return (_C.link == _digest(name), _C.browser == _digest(browser), _C.made_at > StoreClock() - LINK_MILLIS)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
