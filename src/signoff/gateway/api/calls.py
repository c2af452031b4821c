"""The API of external calls: propose, read, use once, report, withdraw."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from signoff.calls.agent_calls import MOVING, SETTLED
from signoff.calls.call_naming import naming
from signoff.contracts.audit import EventList
from signoff.contracts.requests import MAX_WAIT_SECONDS, CallBody, OutcomeBody
from signoff.contracts.responses import CallAnswer, PermitAnswer
from signoff.gateway.api.events import (
    After,
    EventLimit,
    EventPart,
    EventWait,
    LastEventId,
    answer_events,
    event_number,
)
from signoff.gateway.api.faults import FAULTS
from signoff.gateway.auth.dependencies import Deps, LiveUpdates, TokenAgent
from signoff.gateway.calls.own_calls import OwnCall, OwnCalls
from signoff.gateway.events.event_reader import EventFilter, EventReader
from signoff.gateway.transport.json_route import JsonRoute

router = APIRouter(prefix="/v1/calls", tags=["calls"], responses=FAULTS, route_class=JsonRoute)

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Your key of the call: the same key again is the same call. "
        "Make it of your conversation's id and the call's place in it: a model's id of a call comes again.",
    ),
]
UseKey = Annotated[
    str | None, Header(alias="Idempotency-Key", description="Your id of this try, so that it can be sent again.")
]
Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for people's answer.")]
Agent = Annotated[str | None, Query(description="In development, whose call it is; needless with one agent.")]


async def _own_calls(request: Request, caller: TokenAgent) -> OwnCalls:
    return OwnCalls(request)


Calls = Annotated[OwnCalls, Depends(_own_calls)]


@router.post(
    "",
    status_code=201,
    summary="Propose a call",
    response_model_exclude_defaults=True,
    responses={200: {"model": CallAnswer, "description": "It is settled: permitted, used, denied or ended."}},
)
async def propose_call(
    body: CallBody, calls: Calls, request: Request, response: Response, key: Key = None
) -> CallAnswer:
    """201 where it waits, 200 where it is settled. With `use` a call that is permitted is used in the same answer.

    Sent again it is not handed out again, as whoever sends it may have run it; with an id of the try in `use` it is.
    Without an `Idempotency-Key` an equal proposal of the same agent, session and person joins a call that was not used
    and whose result was not handed out yet.
    """
    with naming("`Idempotency-Key`", key):
        call = await calls.propose(body, key=key)
    response.status_code = 201 if call.answer.state in MOVING else 200
    response.headers["location"] = f"/v1/calls/{call.id}"
    return await _hand_out(request, calls, call)


@router.get("/{call}", summary="One call as it stands", response_model_exclude_defaults=True)
async def show_call(call: str, calls: Calls, request: Request, wait: Wait = 0.0, agent: Agent = None) -> CallAnswer:
    """Answers at once where it is settled; else when people have answered, after `wait` seconds at the latest."""
    found = await calls.wait(await calls.load(call, agent), wait)
    return await _hand_out(request, calls, found)


@router.get("/{call}/events", response_model=EventList, summary="The steps of a call")
async def list_call_events(
    call: str,
    request: Request,
    deps: Deps,
    calls: Calls,
    live: LiveUpdates,
    after: After = 0,
    wait: EventWait = 0,
    limit: EventLimit = 100,
    last_event_id: LastEventId = None,
    agent: Agent = None,
) -> EventList | StreamingResponse:
    """What happened to it, as `/v1/events` tells it, for its own agent alone: to be waited for, or followed."""
    key = (await calls.load(call, agent)).turn.key
    # Also those of a specialist, whose call it is.
    wanted = EventFilter(key.tenant, key, with_private=True)
    part = EventPart(event_number(last_event_id) if last_event_id else after, wait, limit)
    return await answer_events(request, EventReader(deps, live), wanted, part)


@router.post("/{call}/use", summary="Use the permit of a call, once")
async def use_call(call: str, calls: Calls, key: UseKey = None, agent: Agent = None) -> PermitAnswer:
    """The arguments to run it with. 409 `used`, `waiting`, `denied`, `lapsed`, `stale`, `frozen` or `ended`.

    Whoever sends a key gets the same answer for the same key, as an answer may be lost; without one each request is a
    try of its own.
    """
    found = await calls.load(call, agent)
    with naming("call", call):
        used = (await calls.use(found, key)).answer
    return PermitAnswer(args=used.args or {}, key=used.key, note=used.note)


@router.post("/{call}/outcome", summary="Report what became of a used call", response_model_exclude_defaults=True)
async def report_call(call: str, body: OutcomeBody, calls: Calls, agent: Agent = None) -> CallAnswer:
    """409 `not_used` before its permit was used, `conflict` where another outcome was reported before."""
    with naming("call", call):
        return (await calls.report(await calls.load(call, agent), body)).answer


@router.delete("/{call}", summary="Withdraw a call that was not used", response_model_exclude_defaults=True)
async def withdraw_call(call: str, calls: Calls, request: Request, agent: Agent = None) -> CallAnswer:
    """Nobody is asked any more, and its permit is worth nothing. 409 `used` where it was used before."""
    found = await calls.load(call, agent)
    with naming("call", call):
        return await _hand_out(request, calls, await calls.withdraw(found))


async def _hand_out(request: Request, calls: OwnCalls, call: OwnCall) -> CallAnswer:
    """Returns an answer; one that tells a result, or a denial, only once no proposal joins its call any more."""
    # Whoever went away while it waited is told nothing, and finds its result when it proposes the same again.
    if call.answer.state in SETTLED and not await request.is_disconnected():
        await calls.hand_out(call)
    return call.answer
