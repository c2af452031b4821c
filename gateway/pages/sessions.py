"""Pages of sessions: say something, follow a whole conversation live, say more in it."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from signoff.contracts.errors import NotFound, SignoffError
from signoff.contracts.ids import SessionKey, TurnKey, is_id
from signoff.contracts.names import DEFAULT_ASKER
from signoff.contracts.requests import SayBody
from signoff.contracts.session_messages import SessionView
from signoff.contracts.turn import TurnView
from signoff.gateway.auth.dependencies import PAGE_READ, PAGE_START
from signoff.gateway.auth.streams import streamed
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps, session_name, turn_name
from signoff.gateway.errors import sentence, status_of
from signoff.gateway.live import Live, event
from signoff.gateway.pages.first_run import first_run
from signoff.gateway.pages.form_fields import read_form
from signoff.gateway.pages.renderer import Pages
from signoff.gateway.pages.session_view import session_talk, state_of, turns_in_full
from signoff.gateway.pages.visitor import Visitor, Visitors
from signoff.gateway.session_names import own_session
from signoff.gateway.turn_starter import new_id, read_session, say
from signoff.texts.catalogue import text

WATCH_SECONDS: Final = 0.7


class SessionPages:
    """Handlers of `/new` and `/sessions/...`."""

    def __init__(self, deps: GatewayDeps, visitors: Visitors, pages: Pages, live: Live) -> None:
        self._deps = deps
        self._visitors = visitors
        self._pages = pages
        self._live = live
        self._conversations = Conversations(deps)

    def router(self) -> APIRouter:
        """The routes."""
        router = APIRouter(include_in_schema=False)
        router.add_api_route("/new", self.new, methods=["GET", "HEAD"], dependencies=[PAGE_READ])
        router.add_api_route("/sessions", self.begin, methods=["POST"], dependencies=[PAGE_START])
        router.add_api_route("/sessions/{session}", self.talk, methods=["GET", "HEAD"], dependencies=[PAGE_READ])
        router.add_api_route("/sessions/{session}", self.more, methods=["POST"], dependencies=[PAGE_START])
        router.add_api_route("/sessions/{session}/cancel", self.cancel, methods=["POST"], dependencies=[PAGE_START])
        router.add_api_route("/live/sessions/{session}", self.changes, methods=["GET"], dependencies=[PAGE_READ])
        return router

    async def new(self, request: Request) -> Response:
        """The form to say something to an actor."""
        return self._form(await self._visitors.visitor(request))

    async def begin(self, request: Request) -> Response:
        """Begin a session from the form, then show it."""
        visitor = await self._visitors.visitor(request)
        form = await _fields(request)
        note, status = self._unsaid(visitor, form, "new")
        key = SessionKey(visitor.person.tenant, form.get("id", ""))
        if not note:
            key = self._own_session(visitor, key)
            note, status = await self._say(visitor, form, key)
        if note:
            return self._form(visitor, form, note=note, status=status)
        return RedirectResponse(f"/sessions/{session_name(key)}", status_code=303)

    async def talk(self, request: Request, session: str) -> Response:
        """One session as it stands."""
        visitor = await self._visitors.visitor(request)
        return await self._talk(visitor, _own(visitor, session), part=request.query_params.get("part") == "thread")

    async def more(self, request: Request, session: str) -> Response:
        """Say something more."""
        visitor = await self._visitors.visitor(request)
        key = _own(visitor, session)
        form = await _fields(request)
        note, status = self._unsaid(visitor, form, f"say {session_name(key)}")
        if not note and self._own_session(visitor, key) != key:
            # Who may only read it; a stranger is told, as everywhere, that there is none.
            await self._conversations.session(key, visitor.person)
            note, status = text("talk.not_yours", visitor.formatter.language), 403
        if not note:
            note, status = await self._say(visitor, form, key)
        if note:
            return await self._talk(visitor, key, note=note, status=status, words=form.get("text", ""))
        return RedirectResponse(f"/sessions/{session_name(key)}", status_code=303)

    async def cancel(self, request: Request, session: str) -> Response:
        """Stop every turn of a session that goes on."""
        visitor = await self._visitors.visitor(request)
        key = _own(visitor, session)
        form = await _fields(request)
        if not visitor.opened(form.get("token", ""), f"cancel {session_name(key)}"):
            note = text("note.out_of_date", visitor.formatter.language)
            return await self._talk(visitor, key, note=note, status=403)
        await self._conversations.stop_session(key, visitor.person)
        return RedirectResponse(f"/sessions/{session_name(key)}", status_code=303)

    async def changes(self, request: Request, session: str) -> Response:
        """Events `turn` whenever what the page shows has changed. A session is never over."""
        visitor = await self._visitors.visitor(request)
        key = _own(visitor, session)
        await self._conversations.session(key, visitor.person)
        stream = self._live.follow(f"page {key.workflow_id}", lambda: self._versions(key))
        return streamed(request, stream, self._conversations.following(key))

    def _own_session(self, visitor: Visitor, key: SessionKey) -> SessionKey:
        return own_session(key, visitor.person, development=self._deps.development)

    def _unsaid(self, visitor: Visitor, form: dict[str, str], purpose: str) -> tuple[str, int]:
        """Why a form says nothing, and the status; "" where it does."""
        language = visitor.formatter.language
        if not visitor.opened(form.get("token", ""), purpose):
            return text("new.out_of_date", language), 403
        if not form.get("text", "").strip() or not is_id(form.get("id", "")):
            return text("new.empty", language), 422
        return "", 200

    async def _say(self, visitor: Visitor, form: dict[str, str], key: SessionKey) -> tuple[str, int]:
        """Say what a form holds; why not, and the status. A form that is sent twice says it once, by its `id`."""
        try:
            body = SayBody(
                text=form["text"].replace("\r\n", "\n"),
                actor=form.get("actor") or None,
                user=visitor.person.id if visitor.signed_in else form.get("user") or DEFAULT_ASKER,
                id=form["id"],
            )
            await say(self._deps, body, key, channel="inbox")
        except ValidationError as error:
            return sentence(error.errors()), 422
        except SignoffError as error:
            return error.message, status_of(error)
        return "", 200

    def _form(
        self, visitor: Visitor, form: dict[str, str] | None = None, *, note: str = "", status: int = 200
    ) -> Response:
        given = form or {}
        return self._pages.page(
            "new.html",
            visitor,
            status=status,
            nav="new",
            note=note,
            token=visitor.token("new"),
            id=given.get("id") or new_id(self._deps),
            actors=tuple(self._deps.catalog.actors.values()),
            words=given.get("text", ""),
            actor=given.get("actor", ""),
            first_run=first_run(self._deps, visitor.person),
            user=given.get("user", "") or self._asker(visitor),
        )

    async def _talk(
        self,
        visitor: Visitor,
        key: SessionKey,
        *,
        part: bool = False,
        note: str = "",
        status: int = 200,
        words: str = "",
    ) -> Response:
        language = visitor.formatter.language
        view = await self._conversations.session(key, visitor.person)
        talk = await session_talk(self._deps, view, await turns_in_full(self._deps, view), language)
        first = next((said.words for said in talk.entries if said.who == "person"), "")
        name = session_name(key)
        started = view.turns[0].started_at if view.turns else None
        return self._pages.page(
            "_thread.html" if part else "session.html",
            visitor,
            status=status,
            nav="turns",
            talk=talk,
            title=" ".join(first.split())[:80] or text("talk.title", language),
            session=name,
            turns=[turn_name(TurnKey(view.tenant, view.session, turn.turn)) for turn in view.turns],
            actor=view.actor,
            user=view.owner or self._asker(visitor),
            started=visitor.formatter.moment(started) if started else None,
            temporal=self._deps.temporal_link(key),
            id=new_id(self._deps),
            token=visitor.token(f"say {name}"),
            stop=visitor.token(f"cancel {name}"),
            may_stop=self._conversations.may_stop(visitor.person, self._conversations.of_session(key, visitor.person)),
            words=words,
            note=note,
        )

    def _asker(self, visitor: Visitor) -> str:
        """On whose behalf a turn is offered: not the visitor's, who could not approve what it asks for."""
        others = [each.id for each in self._deps.people.all(visitor.person.tenant) if each.active]
        if DEFAULT_ASKER in others:
            return DEFAULT_ASKER
        return next((each for each in others if each != visitor.person.id), visitor.person.id)

    async def _versions(self, key: SessionKey) -> AsyncGenerator[str, None]:
        last: Any = None
        try:
            while True:
                view = await self._deps.desk.session(key)
                shown = _facts(view, await turns_in_full(self._deps, view))
                if shown != last:
                    last = shown
                    yield event("turn", {"state": state_of(view), "calls": shown["calls"], "over": False})
                await asyncio.sleep(WATCH_SECONDS)
        except SignoffError:
            # The reader comes back by itself, and then finds what there is.
            return


def _facts(view: SessionView, turns: dict[str, TurnView]) -> dict[str, Any]:
    """What a page's reader would see change."""
    calls = {
        call.approval.id: f"{call.approval.revision}-{call.approval.state}-{len(call.approval.votes)}-{call.state}"
        for turn in turns.values()
        for call in turn.calls
        if call.approval is not None
    }
    states = [(turn.turn, turn.state) for turn in view.turns]
    lengths = [(turn.turn, len(turn.messages), [call.state for call in turn.calls]) for turn in turns.values()]
    return {"calls": calls, "states": states, "lengths": lengths, "queued": len(view.queued)}


def _own(visitor: Visitor, session: str) -> SessionKey:
    key = read_session(session)
    if key.tenant != visitor.person.tenant:
        raise NotFound(f"there is no session `{session}`")
    return key


async def _fields(request: Request) -> dict[str, str]:
    return {name: str(value) for name, value in (await read_form(request)).items()}
