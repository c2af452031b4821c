"""Pages of turns: follow one live, find an earlier one."""

from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from signoff.contracts.errors import NotFound, SignoffError
from signoff.contracts.ids import SessionKey, TurnKey, is_id
from signoff.contracts.list_rows import TurnRow
from signoff.contracts.turn import TurnView
from signoff.engine.turn_list import turns
from signoff.gateway.auth.dependencies import PAGE_READ, PAGE_START
from signoff.gateway.auth.person_lookup import active_people, display_name
from signoff.gateway.auth.streams import streamed
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps, session_name, turn_name
from signoff.gateway.live import Live, event
from signoff.gateway.pages.form_fields import read_form
from signoff.gateway.pages.renderer import Pages
from signoff.gateway.pages.turn_view import talk_of
from signoff.gateway.pages.visitor import Visitor, Visitors
from signoff.gateway.read_access import of_turn
from signoff.gateway.turn_starter import read_turn
from signoff.store.questions import Questions
from signoff.texts.catalogue import text

LISTED: Final = 50
STATES: Final = (
    "running", "suspended", "complete", "clarifying", "awaiting", "delegated", "passed", "error", "cancelled",
    "terminated", "failed",
)  # fmt: skip
SINCE: Final = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}


class TalkPages:
    """Handlers of `/turns` and `/turns/...`."""

    def __init__(self, deps: GatewayDeps, visitors: Visitors, pages: Pages, live: Live) -> None:
        self._deps = deps
        self._visitors = visitors
        self._pages = pages
        self._live = live
        self._conversations = Conversations(deps)

    def router(self) -> APIRouter:
        """The routes."""
        router = APIRouter(include_in_schema=False)
        router.add_api_route("/turns", self.index, methods=["GET", "HEAD"], dependencies=[PAGE_READ])
        router.add_api_route("/turns/{turn}", self.talk, methods=["GET", "HEAD"], dependencies=[PAGE_READ])
        router.add_api_route("/turns/{turn}/cancel", self.cancel, methods=["POST"], dependencies=[PAGE_START])
        router.add_api_route("/live/turns/{turn}", self.changes, methods=["GET"], dependencies=[PAGE_READ])
        return router

    async def talk(self, request: Request, turn: str) -> Response:
        """One conversation as it stands."""
        visitor = await self._visitors.visitor(request)
        return await self._talk(visitor, self._own(visitor, turn), part=request.query_params.get("part") == "thread")

    async def cancel(self, request: Request, turn: str) -> Response:
        """Stop a turn."""
        visitor = await self._visitors.visitor(request)
        key = self._own(visitor, turn)
        form = await read_form(request)
        if not visitor.opened(str(form.get("token", "")), f"cancel {turn_name(key)}"):
            note = text("note.out_of_date", visitor.formatter.language)
            return await self._talk(visitor, key, note=note, status=403)
        await self._conversations.stop_turn(key, visitor.person)
        return RedirectResponse(f"/turns/{turn_name(key)}", status_code=303)

    async def changes(self, request: Request, turn: str) -> Response:
        """Events `turn` whenever what the page shows has changed; the last one says that the turn is over."""
        visitor = await self._visitors.visitor(request)
        key = self._own(visitor, turn)
        await self._conversations.turn(key, visitor.person)
        stream = self._live.follow(f"page {key.workflow_id}", lambda: self._versions(key))
        return streamed(request, stream, self._conversations.following(key))

    async def index(self, request: Request) -> Response:
        """Earlier turns, by state, actor, person and time."""
        visitor = await self._visitors.visitor(request)
        given = request.query_params
        chosen = {name: given.get(name, "") for name in ("state", "actor", "person", "since")}
        formatter = visitor.formatter
        age = SINCE.get(chosen["since"])
        readable = self._conversations.readable(visitor.person)
        found = await turns(
            self._deps.desk.temporal,
            Questions(self._deps.store),
            tenant=visitor.person.tenant,
            state=chosen["state"] if chosen["state"] in STATES else "",
            actor=chosen["actor"] if is_id(chosen["actor"]) else "",
            since=formatter.now - age if age is not None else None,
            wanted=lambda row: chosen["person"] in ("", row.requester) and readable(row),
            limit=LISTED,
        )
        rows = [
            {
                "row": row,
                "name": turn_name(_key(row)),
                "requester": display_name(self._deps.people, row.requester, row.tenant),
                "started": formatter.moment(row.started_at) if row.started_at else None,
                "ago": formatter.ago(row.started_at) if row.started_at else "",
            }
            for row in found
        ]
        return self._pages.page(
            "turns.html",
            visitor,
            nav="turns",
            rows=rows,
            askers=self._askers(visitor, found),
            chosen=chosen,
            filtered=any(chosen.values()),
            states=STATES,
            spans=tuple(SINCE),
            actors=sorted(self._deps.catalog.actors),
            limit=LISTED,
        )

    def _askers(self, visitor: Visitor, found: Sequence[TurnRow]) -> list[str]:
        """Whose turns one may look for: those of everybody in development, else of whom one may read any."""
        if self._deps.development:
            return [person.id for person in active_people(self._deps.people, visitor.person.tenant)]
        # Who else there is, is told to nobody who may not read it: these are in the rows.
        told = {row.requester for row in found} | {visitor.person.id}
        return sorted(told - {""})

    def _own(self, visitor: Visitor, turn: str) -> TurnKey:
        key = read_turn(self._deps, turn, visitor.person, visitor.person.tenant)
        if key.tenant != visitor.person.tenant:
            raise NotFound(f"there is no turn `{turn}`")
        return key

    async def _talk(
        self, visitor: Visitor, key: TurnKey, *, part: bool = False, note: str = "", status: int = 200
    ) -> Response:
        view = await self._conversations.turn(key, visitor.person)
        session = SessionKey(key.tenant, key.session)
        talk = await talk_of(self._deps, view, visitor.formatter.language)
        first = next((said.words for said in talk.entries if said.who == "person"), "")
        started = visitor.formatter.moment(view.started_at) if view.started_at else None
        return self._pages.page(
            "_thread.html" if part else "talk.html",
            visitor,
            status=status,
            nav="turns",
            talk=talk,
            title=" ".join(first.split())[:80] or text("talk.title", visitor.formatter.language),
            view=view,
            turn=turn_name(key),
            session=session_name(session) if self._shows_session(visitor, view, session) else "",
            requester=view.requester.name or view.requester.user,
            started=started,
            temporal=self._deps.temporal_link(key),
            token=visitor.token(f"cancel {turn_name(key)}"),
            may_stop=self._conversations.may_stop(visitor.person, of_turn(key.tenant, view.requester, ())),
            note=note,
        )

    def _shows_session(self, visitor: Visitor, view: TurnView, session: SessionKey) -> bool:
        return view.in_session and self._conversations.may_read_session(session, visitor.person)

    async def _versions(self, key: TurnKey) -> AsyncGenerator[str, None]:
        try:
            async for view in self._deps.watch(key):
                calls = {
                    call.approval.id: f"{call.approval.revision}-{call.approval.state}-{len(call.approval.votes)}"
                    f"-{call.outcome.code if call.outcome is not None else call.state}"
                    for call in view.calls
                    if call.approval is not None
                }
                yield event("turn", {"state": view.state, "calls": calls, "over": view.result is not None})
        except SignoffError:
            # The reader comes back by itself, and then finds what there is.
            return


def _key(row: TurnRow) -> TurnKey:
    return TurnKey(row.tenant, row.session, row.turn)
