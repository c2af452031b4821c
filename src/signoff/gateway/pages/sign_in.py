"""Signs people in, with a personal token or OpenID Connect, and out."""

from typing import Any, Final
from urllib.parse import quote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from signoff.contracts.errors import BadRequest, Refused
from signoff.contracts.person import Person
from signoff.gateway.auth.browser_session import local_path
from signoff.gateway.auth.caller import caller_of
from signoff.gateway.auth.dependencies import OPEN_PAGE
from signoff.gateway.auth.oidc import assurance_of
from signoff.gateway.auth.sign_in_attempt import CALLBACK, SignInAttempt
from signoff.gateway.auth.visitor import Browser
from signoff.gateway.pages.dependencies import CurrentSite, CurrentVisitor, Site
from signoff.gateway.pages.form_fields import read_form
from signoff.gateway.signed_state import seal, unseal
from signoff.gateway.transport.body_limit import READING
from signoff.languages.catalogue import text
from signoff.store.tokens import Token

ATTEMPT: Final = "signoff_attempt"
"""The cookie of a sign-in while the browser is at the provider."""
ATTEMPT_SECONDS: Final = 600
_WHAT: Final = "sign-in 1"


router = APIRouter(include_in_schema=False)


@router.api_route("/login", methods=["GET", "HEAD"], dependencies=[OPEN_PAGE])
async def show_sign_in(request: Request, site: CurrentSite) -> Response:
    """Show the form for a token. Redirects a visitor who is already signed in."""
    then = local_path(request.query_params.get("next", ""))
    if caller_of(request) is not None:
        return RedirectResponse(then, status_code=303)
    browser = await site.visitors.browser(request)
    notice = next((key for key in ("out", "lost") if key in request.query_params), "")
    return _form(site, browser, then, note=text(f"login.{notice}", browser.formatter.language) if notice else "")


@router.post("/login", dependencies=[OPEN_PAGE])
async def sign_in_by_token(request: Request, site: CurrentSite) -> Response:
    """Sign in with a pasted token."""
    browser = await site.visitors.browser(request)
    form = {name: str(value) for name, value in (await read_form(request)).items()}
    then = local_path(form.get("next", ""))
    if not browser.opened(form.get("token", ""), "login"):
        note = text("login.out_of_date", browser.formatter.language)
        return _form(site, browser, then, note=note, status=403)
    try:
        token = await site.sign_in.tokens.authenticate(form.get("secret", "").strip(), site.deps.clock())
        return await site.sign_in.entrance.enter(_person(site, token), then, "session", token)
    except Refused as error:
        return await _refuse(site, browser, then, error)


@router.post("/logout", dependencies=[OPEN_PAGE])
async def sign_out(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    form = await read_form(request)
    if not visitor.opened(str(form.get("token", "")), "logout"):
        raise BadRequest("this page is out of date; open it again and sign out there", status=403)
    return await site.sign_in.entrance.leave(visitor)


@router.get("/login/oidc", dependencies=[OPEN_PAGE])
async def go_to_provider(request: Request, site: CurrentSite) -> Response:
    """Redirect the browser to the provider. A sealed cookie keeps the expected answer for ten minutes."""
    browser = await site.visitors.browser(request)
    then = local_path(request.query_params.get("next", ""))
    url, attempt = await site.sign_in.provider.begin()
    end = int(site.deps.clock().timestamp()) + ATTEMPT_SECONDS
    values = [attempt.state, attempt.nonce, attempt.verifier, then, end]
    response = RedirectResponse(url, status_code=303)
    site.visitors.set_cookie(response, ATTEMPT, seal(browser.key, _WHAT, values), seconds=ATTEMPT_SECONDS)
    return response


@router.get(CALLBACK, dependencies=[OPEN_PAGE])
async def come_from_provider(request: Request, site: CurrentSite) -> Response:
    """Finish a sign-in with the provider: sign in the person whom its ID token proves, once for each attempt."""
    browser = await site.visitors.browser(request)
    then = "/"
    try:
        attempt, then = _attempt(site, browser, site.visitors.cookie(request, ATTEMPT))
        response = await _admit(site, attempt, then, dict(request.query_params))
    except Refused as error:
        response = await _refuse(site, browser, then, error)
    site.visitors.set_cookie(response, ATTEMPT, "", seconds=0)
    return response


async def _admit(site: Site, attempt: SignInAttempt, then: str, answer: dict[str, str]) -> Response:
    claims = await site.sign_in.provider.finish(attempt, answer)
    person, vouched = await site.sign_in.logins.admit(claims)
    try:
        return await site.sign_in.entrance.enter(
            person, then, assurance_of(claims, site.deps.settings.oidc_mfa_acr), vouched=vouched
        )
    finally:
        site.sign_in.logins.look_again()


def _attempt(site: Site, browser: Browser, cookie: str) -> tuple[SignInAttempt, str]:
    values: list[Any] | None = unseal(browser.key, _WHAT, cookie)
    if values is None or site.deps.clock().timestamp() >= values[4]:
        raise Refused("this sign-in did not start in this browser, or took longer than ten minutes")
    return SignInAttempt(values[0], values[1], values[2]), values[3]


def _person(site: Site, token: Token) -> Person:
    person = site.deps.people.find(token.person, token.tenant)
    if person is None or not person.active:
        raise Refused("the person of this token is not in the directory, or not active")
    return person


async def _refuse(site: Site, browser: Browser, then: str, error: Refused) -> Response:
    # For the directory's operators. The refused person sees neither.
    login, person = (str(error.context.get(key, "")) for key in ("login", "person"))
    await site.sign_in.refusals.note(error.message, login=login, person=person)
    note = text("login.refused", browser.formatter.language)
    return _form(site, browser, then, note=note, detail=error.message, status=401)


def _form(site: Site, browser: Browser, then: str, *, note: str = "", detail: str = "", status: int = 200) -> Response:
    return site.renderer.page(
        "login.html",
        browser,
        status=status,
        nav="login",
        note=note,
        detail=detail,
        bad=status >= 400,
        then=then,
        token=browser.token("login"),
        provider=site.sign_in.provider_name,
        by_email=site.sign_in.email.is_on,
    )


def to_login(request: Request) -> Response:
    """Leads back to the requested page. The contents of a sent form are lost."""
    url = request.url
    if request.method in READING:
        wanted = f"{url.path}?{url.query}" if url.query else url.path
        back = f"?next={quote(wanted, safe='')}" if wanted != "/" else ""
        return RedirectResponse(f"/login{back}", status_code=303)
    # A form's address is its page's address and a verb.
    page, _, verb = url.path.rpartition("/")
    back = f"&next={quote(page, safe='')}" if verb and page.count("/") == 2 else ""
    return RedirectResponse(f"/login?lost=1{back}", status_code=303)
