"""Serves the page of remembered answers, with a form to revoke them."""

from dataclasses import dataclass

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from signoff.contracts.errors import NotFound, Refused
from signoff.contracts.grant import Grant
from signoff.gateway.auth.dependencies import PAGE_CONTROL, PAGE_READ
from signoff.gateway.auth.person_lookup import display_name
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.grant_service import readable_grants, take_back
from signoff.gateway.pages.dependencies import CurrentSite, CurrentVisitor, Site
from signoff.gateway.pages.form_fields import read_form
from signoff.languages.catalogue import text
from signoff.languages.remarks import error_text
from signoff.texts.formatter import FormattedTime


@dataclass(frozen=True)
class GrantRow:
    """One remembered answer, as shown. `token` belongs to the form that revokes it."""

    grant: Grant
    tool: str
    people: str
    until: FormattedTime
    until_in: str
    token: str


router = APIRouter(include_in_schema=False)


@router.api_route("/grants", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def list_grants(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """List the grants that concern the visitor, newest first."""
    done = text("grants.revoked", visitor.formatter.language) if request.query_params.get("revoked") else ""
    return await _page(site, visitor, note=done)


@router.post("/grants/{grant}/revoke", dependencies=[PAGE_CONTROL])
async def revoke_grant(request: Request, grant: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Revoke a grant. For its authors and operators."""
    language = visitor.formatter.language
    token = str((await read_form(request)).get("token", ""))
    if not visitor.opened(token, _purpose(grant)):
        return await _page(site, visitor, note=text("note.out_of_date", language), bad=True, status=403)
    try:
        await take_back(site.deps, grant, visitor.person, visitor.person.tenant)
    except Refused as error:
        note = text("grants.not_revoked", language, why=error_text(error, language))
        status = 404 if isinstance(error, NotFound) else 403
        return await _page(site, visitor, note=note, bad=True, status=status)
    return RedirectResponse("/grants?revoked=1", status_code=303)


async def _page(site: Site, visitor: Visitor, *, note: str = "", bad: bool = False, status: int = 200) -> Response:
    person = visitor.person
    grants = await site.deps.lists.share(
        person, (), ("page grants",), lambda: readable_grants(site.deps, person, person.tenant)
    )
    rows = [_row(site, grant, visitor) for grant in grants]
    return site.renderer.page("grants.html", visitor, status=status, nav="grants", rows=rows, note=note, bad=bad)


def _row(site: Site, grant: Grant, visitor: Visitor) -> GrantRow:
    tool = site.deps.catalog.resolve(grant.like.tool)
    return GrantRow(
        grant=grant,
        tool=(tool.title if tool is not None else "") or grant.like.tool,
        people=", ".join(display_name(site.deps.people, each, grant.like.tenant) for each in grant.people),
        until=visitor.formatter.moment(grant.expires_at),
        until_in=visitor.formatter.until(grant.expires_at),
        token=visitor.token(_purpose(grant.id)),
    )


def _purpose(grant: str) -> str:
    return f"revoke {grant}"
