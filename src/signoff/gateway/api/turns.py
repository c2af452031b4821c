"""The API of turns: start, read, follow, list, cancel."""

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from signoff.contracts.errors import NotFound, SignoffError
from signoff.contracts.ids import TurnKey, turn_name
from signoff.contracts.limits import RESULT_CHARS_PER_BATCH
from signoff.contracts.requests import CancelBody, TurnBody
from signoff.contracts.responses import ResultRest, TurnCancelled, TurnLinks, TurnList, TurnStarted
from signoff.contracts.turn import TurnView
from signoff.formats.replace import replace
from signoff.gateway.api.faults import FAULTS
from signoff.gateway.approvals.secret_masks import masked_view
from signoff.gateway.auth.caller import AuthenticatedCaller, acting_person, own_tenant, person_of, scopes_of
from signoff.gateway.auth.dependencies import As, Deps, LiveUpdates, TokenReader, TokenStarter
from signoff.gateway.auth.streams import stream_events
from signoff.gateway.conversations import Conversations, TurnFilter
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.errors import fault_of
from signoff.gateway.live import event
from signoff.gateway.transport.json_route import JsonRoute
from signoff.gateway.turn_starter import start
from signoff.store.truncated_results import TruncatedResults

router = APIRouter(prefix="/v1/turns", tags=["turns"], responses=FAULTS, route_class=JsonRoute)


@router.post("", status_code=201, summary="Start a turn")
async def start_turn(body: TurnBody, deps: Deps, caller: TokenStarter, response: Response) -> TurnStarted:
    """Answers once the turn is in Temporal. The same id with the same input is the same turn."""
    key = await start(deps, _own_body(deps, body, caller), channel="api")
    name = turn_name(key)
    links = TurnLinks(
        self=f"/v1/turns/{name}",
        events=f"/v1/turns/{name}/events",
        page=deps.page_link(key),
        temporal=deps.temporal_link(key),
    )
    response.headers["location"] = links.self
    return TurnStarted(id=name, tenant=key.tenant, session=key.session, turn=key.turn, links=links)


@router.get("", summary="List turns, newest first")
async def list_turns(
    deps: Deps,
    caller: TokenReader,
    tenant: str | None = None,
    state: str = "",
    actor: str = "",
    since: datetime | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> TurnList:
    """Lists the turns that the caller may read: as requester, as approver, or by a reading role.

    Comes from visibility and store. A new turn may be missing for some milliseconds.
    """
    chosen = TurnFilter(own_tenant(caller, tenant), state, actor, since)
    conversations, person = Conversations(deps), person_of(caller)
    what = ("api turns", chosen, limit)
    turns = await deps.lists.share(
        person, scopes_of(caller), what, lambda: conversations.turns(person, chosen, limit=limit)
    )
    return TurnList(turns=tuple(turns))


@router.get("/{turn}", summary="Read a turn")
async def show_turn(turn: str, deps: Deps, caller: TokenReader) -> TurnView:
    """`turn` is `<tenant>.<session>.<turn>`, a turn's own id, or the beginning of that if it is unambiguous.

    Secrets are masked.
    """
    view = await Conversations(deps).turn(await _key(deps, turn, caller), person_of(caller))
    return masked_view(view, deps.catalog)


@router.get("/{turn}/calls/{call}/rest", summary="Read a truncated result")
async def show_rest(
    turn: str, call: str, deps: Deps, caller: TokenReader, start: Annotated[int, Query(ge=0)] = 0
) -> ResultRest:
    """Returns at most 80,000 characters of the whole text, for readers of the turn. Continue at `next`."""
    key = await _key(deps, turn, caller)
    view = await Conversations(deps).turn(key, person_of(caller))
    handles = [each.outcome.rest for each in view.calls if each.call == call and each.outcome is not None]
    excerpt = None
    if handles and handles[0]:
        excerpt = await TruncatedResults(deps.store).read(key, handles[0], start, RESULT_CHARS_PER_BATCH)
    if excerpt is None:
        raise NotFound(f"call `{call}` of this turn has no truncated result")
    return ResultRest(
        call=call,
        tool=excerpt.tool,
        start=excerpt.start,
        total=excerpt.total,
        next=excerpt.next_start,
        text=excerpt.text,
    )


@router.get("/{turn}/events", summary="Follow a turn by server-sent events", response_class=StreamingResponse)
async def follow_turn(
    turn: str, request: Request, deps: Deps, caller: TokenReader, live: LiveUpdates
) -> StreamingResponse:
    """Sends the whole view as an event `turn` at each change. The stream ends with the view that has a result."""
    key, conversations = await _key(deps, turn, caller), Conversations(deps)
    await conversations.turn(key, person_of(caller))
    stream = live.follow(f"api {key.workflow_id}", lambda: _changes(deps, key))
    return stream_events(request, stream, conversations.following(key))


@router.post("/{turn}/cancel", status_code=202, summary="Ask a turn to stop")
async def cancel_turn(
    turn: str, deps: Deps, caller: TokenStarter, body: CancelBody | None = None, as_person: As = None
) -> TurnCancelled:
    """Running tools are awaited, pending requests are cancelled. For the requester and the role `admin`."""
    key, person = await _key(deps, turn, caller), person_of(caller)
    if as_person is not None:
        person = acting_person(deps, caller, as_person, default=as_person, tenant=key.tenant)
    state = await Conversations(deps).stop_turn(key, person)
    return TurnCancelled(id=turn_name(key), state=state)


def _own_body(deps: GatewayDeps, body: TurnBody, caller: AuthenticatedCaller | None) -> TurnBody:
    fields = body.model_fields_set
    tenant = own_tenant(caller, body.tenant if "tenant" in fields else None)
    named = body.user if "user" in fields else None
    person = acting_person(deps, caller, named, default=body.user, tenant=tenant)
    return replace(body, user=person.id, tenant=tenant)


async def _changes(deps: GatewayDeps, key: TurnKey) -> AsyncGenerator[str, None]:
    try:
        async for view in deps.watch(key):
            yield event("turn", masked_view(view, deps.catalog).model_dump(mode="json"))
    except NotFound:
        return
    except SignoffError as error:
        yield event("problem", fault_of(error).model_dump())


async def _key(deps: GatewayDeps, turn: str, caller: AuthenticatedCaller | None) -> TurnKey:
    key = await Conversations(deps).turn_key(turn, person_of(caller), own_tenant(caller, None))
    own_tenant(caller, key.tenant)
    return key
