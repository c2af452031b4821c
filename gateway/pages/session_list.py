"""The page that lists the sessions one may read."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from signoff.contracts.ids import SessionKey
from signoff.contracts.list_rows import SessionRow
from signoff.gateway.auth.dependencies import PAGE_READ
from signoff.gateway.auth.person_lookup import display_name
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps, session_name
from signoff.gateway.pages.renderer import Pages
from signoff.gateway.pages.visitor import Visitor, Visitors

_LISTED = 50


class SessionListPage:
    """Handler of `GET /sessions`."""

    def __init__(self, deps: GatewayDeps, visitors: Visitors, pages: Pages) -> None:
        self._deps = deps
        self._conversations = Conversations(deps)
        self._visitors = visitors
        self._pages = pages

    def router(self) -> APIRouter:
        """The routes."""
        router = APIRouter(include_in_schema=False)
        router.add_api_route("/sessions", self.page, methods=["GET", "HEAD"], dependencies=[PAGE_READ])
        return router

    async def page(self, request: Request) -> Response:
        """The conversations that go on, and what waits in them."""
        visitor = await self._visitors.visitor(request)
        found = await self._conversations.sessions(visitor.person.tenant, visitor.person, _LISTED)
        rows = [self._shown(row, visitor) for row in found]
        return self._pages.page("sessions.html", visitor, nav="turns", rows=rows, limit=_LISTED)

    def _shown(self, row: SessionRow, visitor: Visitor) -> dict[str, object]:
        formatter = visitor.formatter
        return {
            "row": row,
            "name": session_name(SessionKey(row.tenant, row.session)),
            "requester": display_name(self._deps.people, row.requester, row.tenant) if row.requester else "",
            "started": formatter.moment(row.started_at) if row.started_at else None,
            "ago": formatter.ago(row.started_at) if row.started_at else "",
        }
