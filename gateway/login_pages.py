"""Signing in with a personal token, and signing out."""

from typing import Final
from urllib.parse import quote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from signoff.contracts.errors import Refused
from signoff.contracts.person import Person
from signoff.gateway.caller import SESSION, caller_of
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.faults import BadRequest
from signoff.gateway.guard import READING
from signoff.gateway.render import Pages
from signoff.gateway.texts import text
from signoff.gateway.visitor import Browser, Visitors, new_session
from signoff.store.sessions import LIFETIME, Sessions
from signoff.store.tokens import Token, Tokens

NEXT_CHARS: Final = 500


class LoginPages:
    """Handlers of `/login` and `/logout`."""

    def __init__(self, deps: GatewayDeps, visitors: Visitors, pages: Pages) -> None:
        self._deps = deps
        self._visitors = visitors
        self._pages = pages
        self._tokens = Tokens(deps.store)
        self._sessions = Sessions(deps.store)

    def router(self) -> APIRouter:
        """The routes."""
        router = APIRouter(include_in_schema=False)
        router.add_api_route("/login", self.form, methods=["GET", "HEAD"])
        router.add_api_route("/login", self.by_token, methods=["POST"])
        router.add_api_route("/logout", self.leave, methods=["POST"])
        return router

    async def form(self, request: Request) -> Response:
        """Where a token is pasted; who is signed in already goes where they wanted to."""
        then = local_path(request.query_params.get("next", ""))
        if caller_of(request) is not None:
            return RedirectResponse(then, status_code=303)
        browser = await self._visitors.browser(request)
        note = text("login.out", browser.reader.language) if "out" in request.query_params else ""
        return self._form(browser, then, note=note)

    async def by_token(self, request: Request) -> Response:
        """Sign in with a pasted token. The browser gets a new cookie: one set before by somebody else is worthless."""
        browser = await self._visitors.browser(request)
        form = {name: str(value) for name, value in (await request.form()).items()}
        then = local_path(form.get("next", ""))
        language = browser.reader.language
        if not browser.opened(form.get("token", ""), "login"):
            return self._form(browser, then, note=text("login.out_of_date", language), status=403, bad=True)
        try:
            token = await self._tokens.known(form.get("secret", "").strip(), self._deps.clock())
            person = self._person(token)
        except Refused as error:
            note = text("login.refused", language, why=error.message)
            return self._form(browser, then, note=note, status=401, bad=True)
        return await self._enter(person, then, token)

    async def leave(self, request: Request) -> Response:
        """Sign out: the session is over, not only its cookie gone."""
        visitor = await self._visitors.visitor(request)
        form = await request.form()
        if not visitor.opened(str(form.get("token", "")), "logout"):
            raise BadRequest("this page was out of date; open it again and sign out once more", status=403)
        await self._sessions.close(visitor.session)
        response = RedirectResponse("/login?out=1", status_code=303)
        self._visitors.set_cookie(response, SESSION, "", seconds=0)
        return response

    async def _enter(self, person: Person, then: str, token: Token) -> Response:
        cookie = new_session()
        await self._sessions.open(
            cookie,
            tenant=person.tenant,
            person=person.id,
            assurance="session",
            now=self._deps.clock(),
            token=token,
        )
        response = RedirectResponse(then, status_code=303)
        self._visitors.set_cookie(response, SESSION, cookie, seconds=int(LIFETIME.total_seconds()))
        return response

    def _person(self, token: Token) -> Person:
        person = self._deps.people.find(token.person, token.tenant)
        if person is None or not person.active:
            raise Refused("the person of this token is not in the directory, or not active any more")
        return person

    def _form(self, browser: Browser, then: str, *, note: str = "", status: int = 200, bad: bool = False) -> Response:
        return self._pages.page(
            "login.html",
            browser,
            status=status,
            nav="login",
            note=note,
            bad=bad,
            then=then,
            token=browser.token("login"),
        )


def to_login(request: Request) -> Response:
    """To the sign-in, and from there to the page that was wanted."""
    url = request.url
    wanted = f"{url.path}?{url.query}" if url.query else url.path
    back = f"?next={quote(wanted, safe='')}" if request.method in READING and wanted != "/" else ""
    return RedirectResponse(f"/login{back}", status_code=303)


def local_path(wanted: str) -> str:
    """`wanted` if it is a page of ours, else the first page: nobody is led elsewhere after signing in."""
    # Browsers read a backslash as a slash, and two slashes at the beginning as another host.
    elsewhere = not wanted.startswith("/") or wanted.startswith("//") or "\\" in wanted or not wanted.isprintable()
    return "/" if elsewhere or len(wanted) > NEXT_CHARS or wanted.startswith(("/login", "/logout")) else wanted
