"""Serves shared parts of the pages: person, language, icon, and the parts of an installed app."""

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from signoff.contracts.errors import BadRequest
from signoff.gateway.auth.browser_session import local_path
from signoff.gateway.auth.dependencies import OPEN_PAGE, PAGE_DECIDE
from signoff.gateway.auth.person_lookup import known_person
from signoff.gateway.languages import LANGUAGE
from signoff.gateway.pages.dependencies import CurrentSite, CurrentVisitor
from signoff.gateway.pages.form_fields import read_form
from signoff.gateway.pages.renderer import STATIC
from signoff.languages.catalogue import ENGLISH, is_spoken, text

_ICON: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="8" fill="#2f4bc7"/>'
    '<path d="M8 17l5 5 11-12" fill="none" stroke="#fff" stroke-width="4" stroke-linecap="round" '
    'stroke-linejoin="round"/>{badge}</svg>'
)
_BADGE: Final = (
    '<circle cx="23" cy="9" r="9" fill="#b45309"/><text x="23" y="13" font-family="sans-serif" font-size="12" '
    'font-weight="700" fill="#fff" text-anchor="middle">{count}</text>'
)
_WORKER: Final = (STATIC / "service-worker.js").read_bytes()

router = APIRouter(include_in_schema=False)


@router.post("/person", dependencies=[PAGE_DECIDE])
async def switch_person(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Switch to another person, in the development profile."""
    if visitor.signed_in:
        raise BadRequest("you are signed in; sign out before you switch to another person", status=403)
    form = await read_form(request)
    if not visitor.opened(str(form.get("token", "")), "person"):
        raise BadRequest("this page is out of date; open it again and switch there", status=403)
    person = known_person(site.deps.people, str(form.get("person", "")), visitor.person.tenant)
    response = RedirectResponse("/", status_code=303)
    site.visitors.switch(person, response)
    return response


@router.post("/language", dependencies=[OPEN_PAGE])
async def set_language(request: Request, site: CurrentSite) -> Response:
    """Set the language of pages for this browser."""
    form = await read_form(request)
    browser = await site.visitors.browser(request)
    response = RedirectResponse(local_path(str(form.get("next", ""))), status_code=303)
    language = str(form.get("language", ""))
    if browser.opened(str(form.get("token", "")), "language") and is_spoken(language):
        site.visitors.set_cookie(response, LANGUAGE, language, proves=False)
    return response


@router.api_route("/icon.svg", methods=["GET", "HEAD"], dependencies=[OPEN_PAGE])
async def show_icon(n: int = 0) -> Response:
    """Return the icon with the number of pending requests."""
    badge = _BADGE.format(count=n if n < 100 else "99") if n > 0 else ""
    return Response(_ICON.format(badge=badge), media_type="image/svg+xml")


@router.api_route("/manifest.webmanifest", methods=["GET", "HEAD"], dependencies=[OPEN_PAGE])
async def show_manifest(site: CurrentSite) -> Response:
    """Describe the inbox to browsers that install it as an app."""
    name = site.deps.name or text("product", ENGLISH)
    manifest = {
        "id": "/",
        "name": name,
        "short_name": name,
        "start_url": "/",
        "scope": "/",
        "display": "standalone",
        "background_color": "#ffffff",
        "theme_color": "#2f4bc7",
        "icons": [
            {"src": "/icon.svg", "sizes": "any", "type": "image/svg+xml"},
            *(
                {"src": f"/static/icon-{size}.png", "sizes": f"{size}x{size}", "type": "image/png", "purpose": purpose}
                for size in (192, 512)
                for purpose in ("any", "maskable")
            ),
        ],
    }
    return JSONResponse(manifest, media_type="application/manifest+json")


@router.api_route("/service-worker.js", methods=["GET", "HEAD"], dependencies=[OPEN_PAGE])
async def show_service_worker() -> Response:
    """Return the script that shows notifications. Its address is its scope, so it cannot be below `/static`."""
    return Response(_WORKER, media_type="text/javascript")
