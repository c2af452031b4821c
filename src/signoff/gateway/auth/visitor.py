"""Tells who looks at a page: the person, the browser, and tokens that prove a form came from a page they opened."""

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
    """One browser, whoever sits at it. `fresh` when it brought no cookie yet."""

    session: str
    fresh: bool
    key: bytes
    formatter: Formatter
    path: str
    """Where the page it asked for is found again; `/` for a form it sent."""

    def token(self, purpose: str) -> str:
        """Says what a form must carry: bound to this browser, this person and this purpose."""
        # Cookies are letters and digits and the purpose comes last, so no two of these read the same.
        words = "|".join((self.session, *self._who(), purpose))
        return hmac.new(self.key, words.encode(), "sha256").hexdigest()

    def opened(self, token: str, purpose: str) -> bool:
        """Returns whether `token` comes from a page that this visitor opened for this purpose."""
        # As bytes: compare_digest raises TypeError for text that is not ASCII, and a form may hold any.
        return not self.fresh and hmac.compare_digest(token.encode(), self.token(purpose).encode())

    def _who(self) -> tuple[str, str]:
        return "", ""


@dataclass(frozen=True)
class Visitor(Browser):
    """A person at a browser. `signed_in` unless they only said who they are, in the development profile.

    `freeze` is set while their tenant is frozen. `may_start`: they may start turns. `runs` is false while no worker
    runs.
    """

    person: Person
    assurance: Assurance = "session"
    signed_in: bool = True
    freeze: Freeze | None = None
    may_start: bool = False
    runs: bool = True

    @property
    def undo_mark(self) -> str:
        """Returns the mark of this person in this browser session, by which their denials can be undone."""
        return self.token("undo")[:_MARK_CHARS]

    @property
    def browser(self) -> Browser:
        """Returns the browser alone."""
        return Browser(self.session, self.fresh, self.key, self.formatter, self.path)

    def _who(self) -> tuple[str, str]:
        return self.person.tenant, self.person.id


class Visitors:
    """Recognises visitors by their cookies."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._key: bytes | None = None

    async def visitor(self, request: Request) -> Visitor:
        """Says who sent `request`.

        Raises `StoreUnavailable`; `SignInNeeded` for nobody; `ConfigError` when the directory is empty.
        """
        caller = caller_of(request)
        if caller is not None:
            may_start = "start" in caller.scopes
            return await self.visitor_as(request, caller.person, caller.assurance, may_start=may_start)
        if self._deps.settings.profile != "development":
            raise SignInNeeded("sign in first")
        person = self.person(self.cookie(request, PERSON))
        return await self.visitor_as(request, person, "session", signed_in=False, may_start=True)

    async def visitor_as(
        self,
        request: Request,
        person: Person,
        assurance: Assurance,
        *,
        signed_in: bool = True,
        may_start: bool = False,
    ) -> Visitor:
        """Returns the browser that sent `request`, with a person at it whom somebody else has recognised."""
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
        )

    async def browser(self, request: Request, locale: str = "") -> Browser:
        """Returns the browser that sent `request`. Raises `StoreUnavailable`."""
        # Of the store, not of the process: a form opened at one gateway may be sent to another, or after a restart.
        if self._key is None:
            self._key = await self._deps.store.secret_key(_KEY)
        session = self.cookie(request, SESSION)
        fresh = not is_session(session)
        language = language_for(request, locale)
        spoken = locale if spoken_language(locale) == language else language
        formatter = Formatter(language, _zone(request.cookies.get(ZONE, "")), self._deps.clock(), spoken)
        return Browser(new_session() if fresh else session, fresh, self._key, formatter, _path(request))

    def cookie(self, request: Request, name: str) -> str:
        """Return the cookie that `set_cookie` set; "" where the browser brought none."""
        return request.cookies.get(cookie_name(name, self._deps.settings.public_url), "")

    def person(self, claimed: str) -> Person:
        """Returns the person a browser says it is: nothing proves it, so only the development profile uses this."""
        everybody = active_people(self._deps.people)
        for wanted in (claimed, DEFAULT_DECIDER):
            for person in everybody:
                if person.id == wanted:
                    return person
        if not everybody:
            raise ConfigError("there is nobody in the directory; add people to the manifest")
        return everybody[0]

    def remember(self, browser: Browser, response: Response) -> None:
        """Gives a browser without a cookie its own."""
        if browser.fresh:
            self.set_cookie(response, SESSION, browser.session)

    def switch(self, person: Person, response: Response) -> None:
        """Makes the browser another person from now on."""
        self.set_cookie(response, PERSON, person.id)

    def set_cookie(
        self, response: Response, name: str, value: str, *, seconds: int = YEAR_SECONDS, proves: bool = True
    ) -> None:
        """Sets a cookie that scripts cannot read and other sites do not send along with forms; 0 seconds removes it.

        `proves` is false for a preference, which is read from the request alone and keeps its plain name.
        """
        # Browsers keep a `Secure` cookie from a plain http page back, and then nobody could sign in there.
        # Not `strict`: the way back from a provider, and a link in a mail, come from another site and would lack it.
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
    """Returns a value for a browser's cookie that nobody guesses."""
    return secrets.token_hex(32)


def _zone(name: str) -> tzinfo:
    try:
        # The name is a path below the zone files: one that leaves them raises ValueError, a folder OSError (`America`).
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC
