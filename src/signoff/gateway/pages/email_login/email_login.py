"""Signs people in by a link in an email. Opening the link does not sign in: scanners open every address."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from signoff.contracts.errors import NotFound
from signoff.gateway.auth.browser_session import local_path
from signoff.gateway.auth.dependencies import OPEN_PAGE
from signoff.gateway.auth.email_sign_in import PATH
from signoff.gateway.auth.visitor import Browser
from signoff.gateway.pages.dependencies import CurrentSite, Site
from signoff.gateway.pages.form_fields import read_form
from signoff.languages.catalogue import text

_ADDRESS_CHARS = 320
router = APIRouter(include_in_schema=False)


@router.post(PATH, dependencies=[OPEN_PAGE])
async def send_link(request: Request, site: CurrentSite) -> Response:
    """Answer every address alike."""
    _require_on(site)
    browser = await site.visitors.browser(request)
    form = {name: str(value) for name, value in (await read_form(request)).items()}
    language = browser.formatter.language
    if not browser.opened(form.get("token", ""), "login"):
        return _page(site, browser, note=text("login.out_of_date", language), status=403)
    site.sign_in.email.ask(form.get("address", "")[:_ADDRESS_CHARS], browser.session, local_path(form.get("next", "")))
    return _page(site, browser, note=text("login.mail.sent", language))


@router.api_route(PATH + "/{link}", methods=["GET", "HEAD"], dependencies=[OPEN_PAGE])
async def show_link(request: Request, link: str, site: CurrentSite) -> Response:
    """Show the button that signs in."""
    _require_on(site)
    browser, email = await site.visitors.browser(request), site.sign_in.email
    person = email.person(await email.links.find(link, browser.session))
    if person is None:
        return await _refuse(site, browser)
    return _page(site, browser, link=link, who=person.name or person.id, token=browser.token(f"email {link}"))


@router.post(PATH + "/{link}", dependencies=[OPEN_PAGE])
async def sign_in_by_link(request: Request, link: str, site: CurrentSite) -> Response:
    """Sign in the person of the link, once."""
    _require_on(site)
    browser, email = await site.visitors.browser(request), site.sign_in.email
    if not browser.opened(str((await read_form(request)).get("token", "")), f"email {link}"):
        return await _refuse(site, browser)
    used = await email.links.use(link, browser.session)
    person = email.person(used)
    if used is None or person is None:
        return await _refuse(site, browser)
    return await site.sign_in.entrance.enter(person, used.next, "link")


def _require_on(site: Site) -> None:
    if not site.sign_in.email.is_on:
        raise NotFound("this gateway sends no sign-in links")


async def _refuse(site: Site, browser: Browser) -> Response:
    await site.sign_in.refusals.note("a sign-in link that is unknown, used, expired, or of another browser")
    return _page(site, browser, note=text("login.mail.other", browser.formatter.language), status=401)


def _page(
    site: Site, browser: Browser, *, note: str = "", link: str = "", who: str = "", token: str = "", status: int = 200
) -> Response:
    return site.renderer.page(
        "email_login.html",
        browser,
        status=status,
        nav="login",
        note=note,
        bad=status >= 400,
        link=link,
        who=who,
        token=token,
    )
