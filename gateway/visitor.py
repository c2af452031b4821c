"""Who looks at a page: the person, the browser session, and tokens that prove a form came from a page they opened."""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from starlette.requests import Request
from starlette.responses import Response

from signoff.contracts.errors import ConfigError
from signoff.contracts.person import Person
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.identity import DEFAULT_DECIDER, active_people
from signoff.gateway.texts import language_of
from signoff.gateway.words import Reader

SESSION: Final = "signoff_session"
PERSON: Final = "signoff_person"
ZONE: Final = "signoff_zone"
YEAR_SECONDS: Final = 365 * 86_400
_KEY: Final = "gateway-forms"


@dataclass(frozen=True)
class Visitor:
    """One person at one browser. `fresh` when the browser has no session yet."""

    person: Person
    session: str
    fresh: bool
    key: bytes
    reader: Reader

    def token(self, purpose: str) -> str:
        """What a form must carry: bound to this session, this person and this purpose."""
        words = "|".join((self.session, self.person.tenant, self.person.id, purpose))
        return hmac.new(self.key, words.encode(), "sha256").hexdigest()

    def opened(self, token: str, purpose: str) -> bool:
        """Whether `token` comes from a page that this visitor opened for this purpose."""
        return not self.fresh and hmac.compare_digest(token.encode(), self.token(purpose).encode())


class Visitors:
    """Recognises visitors by their cookies."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._key: bytes | None = None

    async def visitor(self, request: Request) -> Visitor:
        """Who sent `request`. Raises `StoreUnavailable`; `ConfigError` when the directory is empty."""
        if self._key is None:
            self._key = await self._deps.store.secret_key(_KEY)
        person = self.person(request.cookies)
        session = request.cookies.get(SESSION, "")
        fresh = len(session) != 64 or not session.isascii() or not session.isalnum()
        reader = Reader(
            language=language_of(person.locale),
            locale=person.locale,
            zone=_zone(request.cookies.get(ZONE, "")),
            now=self._deps.clock(),
        )
        return Visitor(person, secrets.token_hex(32) if fresh else session, fresh, self._key, reader)

    def person(self, cookies: Mapping[str, str]) -> Person:
        """The person a browser says it is: nothing proves it, so only the development profile uses this."""
        everybody = active_people(self._deps.people)
        for wanted in (cookies.get(PERSON, ""), DEFAULT_DECIDER):
            for person in everybody:
                if person.id == wanted:
                    return person
        if not everybody:
            raise ConfigError("there is nobody in the directory; add people to the manifest")
        return everybody[0]

    def remember(self, visitor: Visitor, response: Response) -> None:
        """Give a browser without a session its own."""
        if visitor.fresh:
            self._set(response, SESSION, visitor.session)

    def switch(self, person: Person, response: Response) -> None:
        """Make the browser another person from now on."""
        self._set(response, PERSON, person.id)

    def _set(self, response: Response, name: str, value: str) -> None:
        secure = self._deps.settings.public_url.startswith("https:")
        response.set_cookie(name, value, max_age=YEAR_SECONDS, httponly=True, samesite="lax", secure=secure)


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC
