"""The visitor of a page: person, browser, and the tokens that prove the origin of a form."""

import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from starlette.requests import Request
from starlette.responses import Response

from signoff.contracts.decision import Assurance
from signoff.contracts.errors import ConfigError
from signoff.contracts.grant import Freeze
from signoff.contracts.names import DEFAULT_DECIDER
from signoff.contracts.person import Person
from signoff.gateway.auth.caller import SESSION, SignInNeeded, caller_of, cookie_name, is_session
from signoff.gateway.auth.person_lookup import active_people
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.languages import language_for
from signoff.languages.catalogue import spoken_language
from signoff.store.freezes import Freezes
from signoff.texts.formatter import Formatter

PERSON: Final = "signoff_person"
ZONE: Final = "signoff_zone"
YEAR_SECONDS: Final = 365 * 86_400
_KEY: Final = "gateway-forms"
_MARK_CHARS: Final = 16


@dataclass(frozen=True)
class Browser:
    """One browser. `fresh` if it sent no cookie."""

    session: str
    fresh: bool
    key: bytes
    formatter: Formatter
    path: str
    """The address of the requested page; `/` for a sent form."""

    def token(self, purpose: str) -> str:
        """Return the token that a form must carry, bound to browser, person and purpose."""
        # Cookies are alphanumeric and the purpose is last, so different inputs never give the same text.
        words = "|".join((self.session, *self._who(), purpose))
        return hmac.new(self.key, words.encode(), "sha256").hexdigest()

    def opened(self, token: str, purpose: str) -> bool:
        """Return whether `token` comes from a page that this visitor opened for this purpose."""
        # Compare bytes: compare_digest raises TypeError for non-ASCII text, and a form may hold any text.
        return not self.fresh and hmac.compare_digest(token.encode(), self.token(purpose).encode())

    def _who(self) -> tuple[str, str]:
        return "", ""


@dataclass(frozen=True)
class Visitor(Browser):
    """A person at a browser. `signed_in` is false for a person named without proof, in development.

    `freeze` is set while the tenant is frozen. `may_start` permits to start turns. `runs` is false while no worker
    runs. `registers` permits to register passkeys.
    """

    person: Person
    assurance: Assurance = "session"
    signed_in: bool = True
    freeze: Freeze | None = None
    may_start: bool = False
    runs: bool = True
    registers: bool = False

    @property
    def undo_mark(self) -> str:
        """Identifies the denials that this person can undo in this browser session."""
        return self.token("undo")[:_MARK_CHARS]

    @property
    def browser(self) -> Browser:
        return Browser(self.session, self.fresh, self.key, self.formatter, self.path)

    def _who(self) -> tuple[str, str]:
        return self.person.tenant, self.person.id


class Visitors:
    """Recognises visitors by their cookies."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._key: bytes | None = None

    async def visitor(self, request: Request) -> Visitor:
        """Raises `StoreUnavailable`, `SignInNeeded` for an anonymous visitor, `ConfigError` for an empty directory."""
        caller = caller_of(request)
        development = self._deps.development
        if caller is not None:
            return await self.visitor_as(
                request,
                caller.person,
                caller.assurance,
                may_start="start" in caller.scopes,
                # A token may belong to a program.
                registers="decide" in caller.scopes and (caller.by_provider or development),
            )
        if not development:
            raise SignInNeeded("sign in first")
        person = self.person(self.cookie(request, PERSON))
        return await self.visitor_as(request, person, "session", signed_in=False, may_start=True, registers=True)

    async def visitor_as(
        self,
        request: Request,
        person: Person,
        assurance: Assurance,
        *,
        signed_in: bool = True,
        may_start: bool = False,
        registers: bool = False,
    ) -> Visitor:
        browser = await self.browser(request, person.locale)
        return Visitor(
            browser.session,
            browser.fresh,
            browser.key,
            browser.formatter,
            browser.path,
            person=person,
            assurance=assurance,
            signed_in=signed_in,
            freeze=await Freezes(self._deps.store).read(person.tenant),
            may_start=may_start,
            runs=await self._deps.workers.running() is not False,
            registers=registers,
        )

    async def browser(self, request: Request, locale: str = "") -> Browser:
        """Raises `StoreUnavailable`."""
        # The store holds the key: a form may be sent to another gateway, or after a restart.
        if self._key is None:
            self._key = await self._deps.store.secret_key(_KEY)
        session = self.cookie(request, SESSION)
        fresh = not is_session(session)
        language = language_for(request, locale)
        spoken = locale if spoken_language(locale) == language else language
        formatter = Formatter(language, _zone(request.cookies.get(ZONE, "")), self._deps.clock(), spoken)
        return Browser(new_session() if fresh else session, fresh, self._key, formatter, _path(request))

    def cookie(self, request: Request, name: str) -> str:
        return request.cookies.get(cookie_name(name, self._deps.settings.public_url), "")

    def person(self, claimed: str) -> Person:
        """Believes the browser without proof. Only the development profile uses this."""
        people = active_people(self._deps.people)
        for wanted in (claimed, DEFAULT_DECIDER):
            for person in people:
                if person.id == wanted:
                    return person
        if not people:
            raise ConfigError("the directory is empty; add people to the manifest")
        return people[0]

    def remember(self, browser: Browser, response: Response) -> None:
        if browser.fresh:
            self.set_cookie(response, SESSION, browser.session)

    def switch(self, person: Person, response: Response) -> None:
        self.set_cookie(response, PERSON, person.id)

    def set_cookie(
        self, response: Response, name: str, value: str, *, seconds: int = YEAR_SECONDS, proves: bool = True
    ) -> None:
        """Scripts cannot read the cookie, and other sites' forms do not send it.

        0 seconds removes it. `proves` is false for a preference that needs no proof; its name gets no prefix.
        """
        # Browsers reject a `Secure` cookie from a plain http page, which would prevent sign-in. Not `strict`: returns
        # from a provider and links in emails come from another site and would lack the cookie.
        address = self._deps.settings.public_url
        name = cookie_name(name, address) if proves else name
        secure = address.startswith("https:")
        response.set_cookie(name, value, max_age=seconds, httponly=True, samesite="lax", secure=secure)


def _path(request: Request) -> str:
    url = request.url
    if request.method not in ("GET", "HEAD"):
        return "/"
    return f"{url.path}?{url.query}" if url.query else url.path


def new_session() -> str:
    return secrets.token_hex(32)


def _zone(name: str) -> tzinfo:
    try:
        # The name is a path below the zone files: one outside raises ValueError, a directory OSError (`America`).
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC
