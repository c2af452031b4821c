"""The list of sessions: which one may read, over the API and as a page."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from signoff.contracts.ids import SessionKey
from signoff.contracts.list_rows import SessionRow
from signoff.contracts.person import Person
from signoff.engine.turn_list import sessions
from signoff.gateway.api.turns import FAULTS
from signoff.gateway.auth.caller import caller_of, own_tenant
from signoff.gateway.auth.person_lookup import display_name
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps, session_name
from signoff.gateway.pages.renderer import Pages
from signoff.gateway.pages.visitor import Visitor, Visitors
from signoff.gateway.session_names import is_own
from signoff.store.questions import Questions

_LISTED = 50


class SessionList:
    """Handlers of `GET /v1/sessions` and `GET /sessions`."""

    def __init__(self, deps: GatewayDeps, visitors: Visitors, pages: Pages) -> None:
        self._deps = deps
        self._conversations = Conversations(deps)
        self._visitors = visitors
        self._pages = pages

    def router(self) -> APIRouter:
        """The routes."""
        router = APIRouter()
        add = router.add_api_route
        add(
            "/v1/sessions",
            self.index,
            methods=["GET"],
            tags=["sessions"],
            responses=FAULTS,
            summary="List sessions, newest first",
        )
        add("/sessions", self.page, methods=["GET", "HEAD"], include_in_schema=False)
        return router

    async def index(
        self, request: Request, tenant: str | None = None, limit: Annotated[int, Query(ge=1, le=500)] = 50
    ) -> dict[str, list[SessionRow]]:
        """Those that whoever asks may read, with the codes of what waits in them.

        From visibility and store; a session that began this moment may be missing for some milliseconds.
        """
        caller = caller_of(request)
        tenant = own_tenant(caller, tenant)
        return {"sessions": await self._readable(None if caller is None else caller.person, tenant, limit)}

    async def page(self, request: Request) -> Response:
        """The conversations that go on, and what waits in them."""
        visitor = await self._visitors.visitor(request)
        found = await self._readable(visitor.person, visitor.person.tenant, _LISTED)
        rows = [self._shown(row, visitor) for row in found]
        return self._pages.page("sessions.html", visitor, nav="turns", rows=rows, limit=_LISTED)

    async def _readable(self, person: Person | None, tenant: str, limit: int) -> list[SessionRow]:
        """Newest first. `person` is None for nobody in particular, whom only the development profile lets in."""
        readable = self._conversations.readable(person)
        found = await sessions(
            self._deps.desk.temporal, Questions(self._deps.store), tenant=tenant, wanted=readable, limit=limit
        )
        return [self._named(row) for row in found]

    def _named(self, row: SessionRow) -> SessionRow:
        """A row without a requester whom its id does not name: a memo is anybody's word."""
        own = self._deps.development or is_own(SessionKey(row.tenant, row.session), row.requester)
        return row if own else row.model_copy(update={"requester": ""})

    def _shown(self, row: SessionRow, visitor: Visitor) -> dict[str, object]:
        formatter = visitor.formatter
        return {
            "row": row,
            "name": session_name(SessionKey(row.tenant, row.session)),
            "requester": display_name(self._deps.people, row.requester, row.tenant) if row.requester else "",
            "started": formatter.moment(row.started_at) if row.started_at else None,
            "ago": formatter.ago(row.started_at) if row.started_at else "",
        }
