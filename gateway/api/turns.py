"""The API of turns: start, read, follow, list, cancel."""

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse

from signoff.contracts.errors import NotFound, SignoffError
from signoff.contracts.ids import TurnKey
from signoff.contracts.limits import RESULT_CHARS_PER_BATCH
from signoff.contracts.list_rows import TurnRow
from signoff.contracts.requests import CancelBody, TurnBody
from signoff.contracts.responses import Fault, RestOfResult, TurnLinks, TurnStarted
from signoff.contracts.turn import TurnView
from signoff.engine.turn_list import turns
from signoff.gateway.auth.caller import Caller, acting, caller_of, own_tenant, person_of, streamed
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps, turn_name
from signoff.gateway.errors import fault_of
from signoff.gateway.live import Live, event
from signoff.gateway.secret_masks import masked_view
from signoff.gateway.turn_starter import start
from signoff.store.questions import Questions
from signoff.store.truncated_results import Rests

FAULTS: dict[int | str, dict[str, Any]] = {
    404: {"model": Fault, "description": "Nothing of that name; the nearest names are offered."},
    409: {"model": Fault, "description": "The id is taken by a turn with other input."},
    413: {"model": Fault, "description": "More than 1 MiB."},
    422: {"model": Fault, "description": "The request cannot be understood."},
    503: {"model": Fault, "description": "The server, the store or every worker is away."},
}


class TurnsApi:
    """Handlers of `/v1/turns`."""

    def __init__(self, deps: GatewayDeps, live: Live) -> None:
        self._deps = deps
        self._live = live
        self._conversations = Conversations(deps)

    def router(self) -> APIRouter:
        """The routes."""
        router = APIRouter(prefix="/v1/turns", tags=["turns"], responses=FAULTS)
        add = router.add_api_route
        started: dict[int | str, dict[str, Any]] = {**FAULTS, 201: {"model": TurnStarted}}
        add("", self.start, methods=["POST"], status_code=201, summary="Start a turn", responses=started)
        add("", self.index, methods=["GET"], summary="List turns, newest first")
        add(
            "/{turn}", self.view, methods=["GET"], summary="One turn as it stands", responses={200: {"model": TurnView}}
        )
        add("/{turn}/events", self.events, methods=["GET"], summary="Follow a turn by server-sent events")
        add("/{turn}/calls/{call}/rest", self.rest, methods=["GET"], summary="Read a result that was cut")
        add("/{turn}/cancel", self.cancel, methods=["POST"], status_code=202, summary="Ask a turn to stop")
        return router

    async def start(self, body: TurnBody, request: Request) -> JSONResponse:
        """Returns when the turn is in Temporal. The same id with the same input is the same turn."""
        key = await start(self._deps, self._own(body, caller_of(request)), channel="api")
        name = turn_name(key)
        answer = TurnStarted(
            id=name,
            tenant=key.tenant,
            session=key.session,
            turn=key.turn,
            links=TurnLinks(
                self=f"/v1/turns/{name}",
                events=f"/v1/turns/{name}/events",
                page=self._deps.page_link(key),
                temporal=self._deps.temporal_link(key),
            ),
        )
        return JSONResponse(answer.model_dump(mode="json"), status_code=201, headers={"location": answer.links.self})

    async def index(
        self,
        request: Request,
        tenant: str | None = None,
        state: str = "",
        actor: str = "",
        since: datetime | None = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
    ) -> dict[str, list[TurnRow]]:
        """Those that whoever asks may read: their own, those that asked them, and all with a role that reads all.

        From visibility and store; a turn started this moment may be missing for some milliseconds.
        """
        tenant = own_tenant(caller_of(request), tenant)
        found = await turns(
            self._deps.desk.temporal,
            Questions(self._deps.store),
            tenant=tenant,
            state=state,
            actor=actor,
            since=since,
            readers=self._conversations.readers(person_of(request)),
            wanted=self._conversations.readable(person_of(request)),
            limit=limit,
        )
        return {"turns": found}

    async def view(self, turn: str, request: Request) -> JSONResponse:
        """`turn` is `<tenant>.<session>.<turn>`, or a turn's own id or the beginning of that, where it fits one alone.

        Secrets are masked.
        """
        view = await self._conversations.turn(await self._key(turn, request), person_of(request))
        view = masked_view(view, self._deps.catalog)
        return JSONResponse(view.model_dump(mode="json"))

    async def rest(
        self, turn: str, call: str, request: Request, start: Annotated[int, Query(ge=0)] = 0
    ) -> RestOfResult:
        """At most 80,000 characters of the whole text, for who may read the turn; `next` is where it goes on."""
        key = await self._key(turn, request)
        view = await self._conversations.turn(key, person_of(request))
        handles = [each.outcome.rest for each in view.calls if each.call == call and each.outcome is not None]
        found = None
        if handles and handles[0]:
            found = await Rests(self._deps.store).read(key, handles[0], start, RESULT_CHARS_PER_BATCH)
        if found is None:
            raise NotFound(f"call `{call}` of this turn has no result that was cut")
        return RestOfResult(
            call=call, tool=found.tool, start=found.start, total=found.total, next=found.next_start, text=found.text
        )

    async def events(self, turn: str, request: Request) -> StreamingResponse:
        """Events `turn` with the whole view, whenever it changed; the stream ends with the view that has a result."""
        key = await self._key(turn, request)
        await self._conversations.turn(key, person_of(request))
        stream = self._live.follow(f"api {key.workflow_id}", lambda: self._changes(key))
        return streamed(request, stream, self._conversations.following(key))

    async def cancel(self, turn: str, request: Request, body: CancelBody | None = None) -> dict[str, str]:
        """Running tools are awaited, waiting requests become cancelled. For who asked, and for the role `admin`.

        `state` is `cancelling`, or that in which the turn was over already.
        """
        key = await self._key(turn, request)
        return {"id": turn_name(key), "state": await self._conversations.stop_turn(key, person_of(request))}

    def _own(self, body: TurnBody, caller: Caller | None) -> TurnBody:
        """The body with the person and the tenant that the turn is for: the caller's, who may leave them out."""
        given = body.model_fields_set
        tenant = own_tenant(caller, body.tenant if "tenant" in given else None)
        named = body.user if "user" in given else None
        person = acting(self._deps, caller, named, default=body.user, tenant=tenant)
        return body.model_copy(update={"user": person.id, "tenant": tenant})

    async def _changes(self, key: TurnKey) -> AsyncGenerator[str, None]:
        try:
            async for view in self._deps.watch(key):
                yield event("turn", masked_view(view, self._deps.catalog).model_dump(mode="json"))
        except NotFound:
            return
        except SignoffError as error:
            yield event("problem", fault_of(error).model_dump())

    async def _key(self, turn: str, request: Request) -> TurnKey:
        caller = caller_of(request)
        key = await self._conversations.turn_key(turn, person_of(request), own_tenant(caller, None))
        own_tenant(caller, key.tenant)
        return key
