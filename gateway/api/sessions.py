"""The API of sessions: say something, hand over a late result, read the conversation."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from signoff.contracts.errors import Refused
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.requests import ResultBody, SayBody
from signoff.contracts.responses import SessionLinks, SessionSaid
from signoff.contracts.session_messages import SessionReceipt, SessionView
from signoff.gateway.api.turns import FAULTS
from signoff.gateway.auth.caller import Caller, acting, caller_of, own_tenant, person_of
from signoff.gateway.auth.person_lookup import known_person
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps, session_name, turn_name
from signoff.gateway.session_names import is_own, own_session
from signoff.gateway.turn_starter import add_result, read_session, say


class SessionsApi:
    """Handlers of `/v1/sessions`."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._conversations = Conversations(deps)

    def router(self) -> APIRouter:
        """The routes."""
        router = APIRouter(prefix="/v1/sessions", tags=["sessions"], responses=FAULTS)
        add = router.add_api_route
        taken: dict[int | str, dict[str, Any]] = {
            **FAULTS,
            200: {"model": SessionSaid, "description": "It was sent before; this changes nothing."},
            201: {"model": SessionSaid},
            202: {"model": SessionSaid, "description": "No worker is there; it is stored and taken in later."},
            429: {"description": "Too much waits for an answer in this session."},
        }
        add(
            "/{session}/messages",
            self.say,
            methods=["POST"],
            status_code=201,
            summary="Say something; the session begins with it if it is new",
            responses=taken,
        )
        add(
            "/{session}/results",
            self.add,
            methods=["POST"],
            status_code=201,
            summary="Hand a late result to a turn",
            responses=taken,
        )
        shown: dict[int | str, dict[str, Any]] = {200: {"model": SessionView}}
        add("/{session}", self.view, methods=["GET"], summary="One session as it stands", responses=shown)
        return router

    async def say(self, session: str, body: SayBody, request: Request) -> JSONResponse:
        """Answered in the order of arrival; a turn that waits for people holds up nobody.

        `session` is `<tenant>.<session>`, or the session alone: the id that an answer told, or a name of one's own,
        which nobody else's session can have taken. The same `id` again is the same message.
        """
        named = _key(session, request)
        body = self._own(body, named, caller_of(request))
        person = known_person(self._deps.people, body.user, named.tenant)
        key = own_session(named, person, development=self._deps.development)
        return self._answer(key, await say(self._deps, body, key, channel="api"))

    async def add(self, session: str, body: ResultBody, request: Request) -> JSONResponse:
        """Goes to the turn itself while it goes on, else to the next turn of the same actor, which begins at once."""
        key, caller = _key(session, request), caller_of(request)
        if caller is not None:
            view = await self._conversations.named_session(key, caller.person)
            key = SessionKey(view.tenant, view.session)
            if not self._deps.development and not is_own(key, caller.person.id):
                # What is handed over here is acted upon in the owner's name.
                raise Refused("only whose session it is can hand results to its turns", code="not_allowed")
        return self._answer(key, await add_result(self._deps, body, key))

    async def view(self, session: str, request: Request) -> JSONResponse:
        """Its turns, oldest first, and what is not answered yet. Each turn's calls are at `/v1/turns/{turn}`."""
        view = await self._conversations.named_session(_key(session, request), person_of(request))
        return JSONResponse(view.model_dump(mode="json"))

    def _own(self, body: SayBody, key: SessionKey, caller: Caller | None) -> SayBody:
        """The body with the person whom the turn is for: the caller's, who may leave it out."""
        named = body.user if "user" in body.model_fields_set else None
        person = acting(self._deps, caller, named, default=body.user, tenant=key.tenant)
        return body.model_copy(update={"user": person.id})

    def _answer(self, key: SessionKey, receipt: SessionReceipt) -> JSONResponse:
        name = session_name(key)
        turn = turn_name(TurnKey(*key, receipt.turn)) if receipt.turn else ""
        answer = SessionSaid(
            id=name,
            tenant=key.tenant,
            session=key.session,
            turn=receipt.turn,
            status=receipt.status,
            code=receipt.code,
            message=receipt.message,
            links=SessionLinks(
                self=f"/v1/sessions/{name}",
                turn=f"/v1/turns/{turn}" if turn else "",
                page=self._deps.session_link(key),
            ),
        )
        status = 202 if receipt.status == "pending" else 200 if receipt.code else 201
        return JSONResponse(answer.model_dump(mode="json"), status_code=status, headers={"location": answer.links.self})


def _key(session: str, request: Request) -> SessionKey:
    caller = caller_of(request)
    key = read_session(session, own_tenant(caller, None))
    own_tenant(caller, key.tenant)
    return key
