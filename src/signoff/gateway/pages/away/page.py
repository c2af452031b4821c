"""Serves the page of the visitor's absence."""

from datetime import datetime
from typing import Any, Final

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from signoff.contracts.errors import NotFound, Refused
from signoff.contracts.requests import AbsenceBody
from signoff.gateway.absence_service import come_back, go_away, list_absences, list_entered
from signoff.gateway.auth.dependencies import PAGE_CONTROL, PAGE_READ
from signoff.gateway.auth.person_lookup import active_people
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.pages.dependencies import CurrentSite, CurrentVisitor, Site
from signoff.gateway.pages.form_fields import read_form
from signoff.languages.catalogue import text

_AWAY: Final = "away"
router = APIRouter(include_in_schema=False)


@router.api_route("/away", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def show_away(site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Show the visitor's absence, or the form."""
    return await _page(site, visitor)


@router.post("/away", dependencies=[PAGE_CONTROL])
async def say_away(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Store the visitor's absence, or end it."""
    form = await read_form(request)
    given = {name: str(form.get(name, "")).strip() for name in ("token", "since", "until", "tool", "to", "back")}
    language = visitor.formatter.language
    if not visitor.opened(given["token"], _AWAY):
        return await _page(site, visitor, note=text("note.out_of_date", language), status=403)
    try:
        if given["back"]:
            await come_back(site.deps, visitor.person, "inbox")
        else:
            await go_away(site.deps, visitor.person, _body(given, visitor), "inbox")
    except NotFound:
        # The visitor has said so in another window.
        pass
    except (Refused, ValueError, ValidationError):
        return await _page(site, visitor, note=text("away.bad", language), status=422)
    return RedirectResponse("/away", status_code=303)


def _body(given: dict[str, str], visitor: Visitor) -> AbsenceBody:
    """Raises `ValueError`. The times are by the visitor's clock."""
    zone = visitor.formatter.zone
    since, until = (
        datetime.fromisoformat(given[name]).replace(tzinfo=zone) if given[name] else None for name in ("since", "until")
    )
    if until is None:
        raise ValueError("an absence ends")
    tools = (given["tool"],) if given["tool"] else ()
    return AbsenceBody(since=since, until=until, tools=tools, to=given["to"])


async def _page(site: Site, visitor: Visitor, *, note: str = "", status: int = 200) -> Response:
    deps, person = site.deps, visitor.person
    absences = await list_absences(deps, person.tenant)
    own = next((each for each in await list_entered(deps, person.tenant) if each.person == person.id), None)
    tools = {tool.name: tool.title or tool.name for tool in deps.catalog.every_tool if not tool.undeclared}
    context: dict[str, Any] = {
        "own": own,
        "others": [each for each in absences if each != own],
        "tools": tools,
        "colleagues": [each for each in active_people(deps.people, person.tenant) if each.id != person.id],
        "away_token": visitor.token(_AWAY),
        "zone": str(visitor.formatter.zone),
        "note": note,
    }
    return site.renderer.page("away.html", visitor, status=status, nav="away", **context)
