"""Serves the page that shows, sets and lifts the freeze of a tenant."""

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from signoff.contracts.errors import NotFound, Refused, ServerUnavailable
from signoff.contracts.limits import REASON_CHARS
from signoff.gateway.auth.dependencies import PAGE_CONTROL, PAGE_READ
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.freeze_service import freeze, operates, unfreeze
from signoff.gateway.pages.dependencies import CurrentSite, CurrentVisitor, Site
from signoff.gateway.pages.form_fields import read_form
from signoff.languages.catalogue import text
from signoff.languages.remarks import error_text

_FREEZE: Final = "freeze"
_UNFREEZE: Final = "unfreeze"


router = APIRouter(include_in_schema=False)


@router.api_route("/freeze", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def show_freeze(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Show the state of the tenant to all. Only operators get the form."""
    note = text("freeze.unfrozen", visitor.formatter.language) if request.query_params.get("unfrozen") else ""
    return _page(site, visitor, note=note)


@router.post("/freeze", dependencies=[PAGE_CONTROL])
async def freeze_tenant(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Freeze the visitor's tenant, or repeat the sweep of a frozen one."""
    language = visitor.formatter.language
    form = await read_form(request)
    reason = str(form.get("reason", "")).strip()
    if not visitor.opened(str(form.get("token", "")), _FREEZE):
        return _page(site, visitor, note=text("note.out_of_date", language), status=403, reason=reason)
    again = visitor.freeze is not None
    if not again and not (form.get("sure") and 0 < len(reason) <= REASON_CHARS):
        note = text("freeze.unsure", language, n=REASON_CHARS)
        return _page(site, visitor, note=note, status=422, reason=reason)
    words = visitor.freeze.reason if visitor.freeze is not None else reason
    try:
        swept = (await freeze(site.deps, visitor.person, reason=words, channel="inbox")).swept
    except ServerUnavailable as error:
        note = text("freeze.unswept", language, why=error_text(error, language))
        return _page(site, await site.visitors.visitor(request), note=note, status=503)
    except Refused as error:
        note = text("freeze.refused", language, why=error_text(error, language))
        return _page(site, visitor, note=note, status=403)
    message = text("freeze.withdrawn", language, n=swept.withdrawn)
    if swept.waiting:
        message = f"{message} {text('freeze.left', language, n=len(swept.waiting))}"
    return _page(site, await site.visitors.visitor(request), note=message, status=200, good=not swept.waiting)


@router.post("/unfreeze", dependencies=[PAGE_CONTROL])
async def unfreeze_tenant(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Unfreeze the visitor's tenant."""
    language = visitor.formatter.language
    if not visitor.opened(str((await read_form(request)).get("token", "")), _UNFREEZE):
        return _page(site, visitor, note=text("note.out_of_date", language), status=403)
    try:
        await unfreeze(site.deps, visitor.person, channel="inbox")
    except NotFound:
        # Another operator was faster, with the same result.
        pass
    except Refused as error:
        note = text("freeze.refused", language, why=error_text(error, language))
        return _page(site, visitor, note=note, status=403)
    return RedirectResponse("/freeze?unfrozen=1", status_code=303)


def _page(
    site: Site, visitor: Visitor, *, note: str = "", status: int = 200, reason: str = "", good: bool | None = None
) -> Response:
    return site.renderer.page(
        "freeze.html",
        visitor,
        status=status,
        nav="freeze",
        note=note,
        bad=status != 200 or good is False,
        may=operates(site.deps, visitor.person),
        reason=reason,
        limit=REASON_CHARS,
        freezing=visitor.token(_FREEZE),
        unfreezing=visitor.token(_UNFREEZE),
    )
