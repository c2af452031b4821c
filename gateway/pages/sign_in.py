"""Signing in, with a personal token or by OpenID Connect, and signing out."""

from typing import Any, Final
from urllib.parse import quote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from signoff.contracts.errors import Refused
from signoff.contracts.person import Person
from signoff.gateway.auth.browser_session import Entrance, local_path
from signoff.gateway.auth.caller import caller_of
from signoff.gateway.auth.dependencies import OPEN_PAGE
from signoff.gateway.auth.failed_sign_ins import Refusals
from signoff.gateway.auth.oidc import Attempt, assurance_of, provider_of
from signoff.gateway.auth.provider_people import Logins
from signoff.gateway.body_limit import READING
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.errors import BadRequest
from signoff.gateway.pages.form_fields import read_form
from signoff.gateway.pages.renderer import Pages
from signoff.gateway.pages.visitor import Browser, Visitors
from signoff.gateway.signed_state import seal, unseal
from signoff.store.tokens import Token, Tokens
from signoff.texts.catalogue import text

ATTEMPT: Final = "signoff_attempt"
"""The cookie of a sign-in that is on its way to the provider and back."""
ATTEMPT_SECONDS: Final = 600
_WHAT: Final = "sign-in 1"


class LoginPages:
    """Handlers of `/login`, `/login/oidc/...` and `/logout`."""

    def __init__(self, deps: GatewayDeps, visitors: Visitors, pages: Pages, logins: Logins) -> None:
        self._deps = deps
        self._logins = logins
        self._visitors = visitors
        self._pages = pages
        self._tokens = Tokens(deps.store)
        self._entrance = Entrance(deps, visitors)
        self._refusals = Refusals(deps, "inbox")
        self._provider = provider_of(deps.settings, deps.clock, deps.secrets)

    def router(self) -> APIRouter:
        """The routes."""
        router = APIRouter(include_in_schema=False)
        router.add_api_route("/login", self.form, methods=["GET", "HEAD"], dependencies=[OPEN_PAGE])
        router.add_api_route("/login", self.by_token, methods=["POST"], dependencies=[OPEN_PAGE])
        router.add_api_route("/logout", self.leave, methods=["POST"], dependencies=[OPEN_PAGE])
        if self._provider is not None:
            router.add_api_route("/login/oidc", self.to_provider, methods=["GET"], dependencies=[OPEN_PAGE])
            router.add_api_route("/login/oidc/callback", self.from_provider, methods=["GET"], dependencies=[OPEN_PAGE])
        return router

    async def form(self, request: Request) -> Response:
        """Where a token is pasted; who is signed in already goes where they wanted to."""
        then = local_path(request.query_params.get("next", ""))
        if caller_of(request) is not None:
            return RedirectResponse(then, status_code=303)
        browser = await self._visitors.browser(request)
        told = next((key for key in ("out", "lost") if key in request.query_params), "")
        return self._form(browser, then, note=text(f"login.{told}", browser.formatter.language) if told else "")

    async def by_token(self, request: Request) -> Response:
        """Sign in with a pasted token."""
        browser = await self._visitors.browser(request)
        form = {name: str(value) for name, value in (await read_form(request)).items()}
        then = local_path(form.get("next", ""))
        if not browser.opened(form.get("token", ""), "login"):
            note = text("login.out_of_date", browser.formatter.language)
            return self._form(browser, then, note=note, status=403)
        try:
            token = await self._tokens.known(form.get("secret", "").strip(), self._deps.clock())
            return await self._entrance.enter(self._person(token), then, "session", token)
        except Refused as error:
            return await self._refused(browser, then, error)

    async def leave(self, request: Request) -> Response:
        """Sign out."""
        visitor = await self._visitors.visitor(request)
        form = await read_form(request)
        if not visitor.opened(str(form.get("token", "")), "logout"):
            raise BadRequest("this page was out of date; open it again and sign out once more", status=403)
        return await self._entrance.leave(visitor)

    async def to_provider(self, request: Request) -> Response:
        """Send the browser to the provider; what must come back is sealed into a cookie for ten minutes."""
        assert self._provider is not None
        browser = await self._visitors.browser(request)
        then = local_path(request.query_params.get("next", ""))
        url, attempt = await self._provider.begin()
        end = int(self._deps.clock().timestamp()) + ATTEMPT_SECONDS
        values = [attempt.state, attempt.nonce, attempt.verifier, then, end]
        response = RedirectResponse(url, status_code=303)
        self._visitors.set_cookie(response, ATTEMPT, seal(browser.key, _WHAT, values), seconds=ATTEMPT_SECONDS)
        return response

    async def from_provider(self, request: Request) -> Response:
        """Back from the provider: whoever its ID token proves is signed in, once for each time they went there."""
        browser = await self._visitors.browser(request)
        then = "/"
        try:
            attempt, then = self._attempt(browser, request.cookies.get(ATTEMPT, ""))
            response = await self._admitted(attempt, then, dict(request.query_params))
        except Refused as error:
            response = await self._refused(browser, then, error)
        self._visitors.set_cookie(response, ATTEMPT, "", seconds=0)
        return response

    async def _admitted(self, attempt: Attempt, then: str, answer: dict[str, str]) -> Response:
        assert self._provider is not None
        claims = await self._provider.finish(attempt, answer)
        person, vouched = await self._logins.admit(claims)
        try:
            return await self._entrance.enter(
                person, then, assurance_of(claims, self._deps.settings.oidc_mfa_acr), vouched=vouched
            )
        finally:
            self._logins.look_again()

    def _attempt(self, browser: Browser, cookie: str) -> tuple[Attempt, str]:
        values: list[Any] | None = unseal(browser.key, _WHAT, cookie)
        if values is None or self._deps.clock().timestamp() >= values[4]:
            raise Refused("this sign-in was not begun in this browser, or took longer than ten minutes")
        return Attempt(values[0], values[1], values[2]), values[3]

    def _person(self, token: Token) -> Person:
        person = self._deps.people.find(token.person, token.tenant)
        if person is None or not person.active:
            raise Refused("the person of this token is not in the directory, or not active any more")
        return person

    async def _refused(self, browser: Browser, then: str, error: Refused) -> Response:
        # For whoever keeps the list of people; who was refused is told neither.
        login, person = (str(error.context.get(key, "")) for key in ("login", "person"))
        await self._refusals.note(error.message, login=login, person=person)
        note = text("login.refused", browser.formatter.language)
        return self._form(browser, then, note=note, detail=error.message, status=401)

    def _form(self, browser: Browser, then: str, *, note: str = "", detail: str = "", status: int = 200) -> Response:
        return self._pages.page(
            "login.html",
            browser,
            status=status,
            nav="login",
            note=note,
            detail=detail,
            bad=status >= 400,
            then=then,
            token=browser.token("login"),
            provider=self._provider.name if self._provider is not None else "",
        )


def to_login(request: Request) -> Response:
    """To the sign-in, and from there to the page that was wanted, or whose form was sent and is lost."""
    url = request.url
    if request.method in READING:
        wanted = f"{url.path}?{url.query}" if url.query else url.path
        back = f"?next={quote(wanted, safe='')}" if wanted != "/" else ""
        return RedirectResponse(f"/login{back}", status_code=303)
    # A form's address is its page's and a verb.
    page, _, verb = url.path.rpartition("/")
    back = f"&next={quote(page, safe='')}" if verb and page.count("/") == 2 else ""
    return RedirectResponse(f"/login?lost=1{back}", status_code=303)
