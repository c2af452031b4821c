"""Serves the page that lists the sessions one may read."""

from fastapi import APIRouter
from starlette.responses import Response

from signoff.contracts.ids import SessionKey
from signoff.contracts.list_rows import SessionRow
from signoff.gateway.auth.dependencies import PAGE_READ
from signoff.gateway.auth.person_lookup import display_name
from signoff.gateway.deps import session_name
from signoff.gateway.pages.dependencies import CurrentSite, CurrentVisitor, Site
from signoff.gateway.pages.visitor import Visitor

_LISTED = 50


router = APIRouter(include_in_schema=False)


@router.api_route("/sessions", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def list_sessions(site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """The conversations that go on, and what waits in them."""
    found = await site.conversations.sessions(visitor.person.tenant, visitor.person, _LISTED)
    rows = [_shown(site, row, visitor) for row in found]
    return site.renderer.page("sessions.html", visitor, nav="turns", rows=rows, limit=_LISTED)


def _shown(site: Site, row: SessionRow, visitor: Visitor) -> dict[str, object]:
    formatter = visitor.formatter
    return {
        "row": row,
        "name": session_name(SessionKey(row.tenant, row.session)),
        "requester": display_name(site.deps.people, row.requester, row.tenant) if row.requester else "",
        "started": formatter.moment(row.started_at) if row.started_at else None,
        "ago": formatter.ago(row.started_at) if row.started_at else "",
    }
