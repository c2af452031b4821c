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
        description="Your key of the call: same key, same call. "
        "Build it from your conversation's id and the call's position. Models repeat their ids of calls.",
    ),
]
UseKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="Your id of this attempt, so that you can repeat the request."),
]
Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for a decision.")]
Agent = Annotated[
    str | None, Query(description="In development, the agent of the call. Optional if there is only one.")
]


async def _own_calls(request: Request, caller: TokenAgent) -> OwnCalls:
    return OwnCalls(request)


Calls = Annotated[OwnCalls, Depends(_own_calls)]


@router.post(
    "",
    status_code=201,
    summary="Propose a call",
    response_model_exclude_defaults=True,
    responses={200: {"model": CallAnswer, "description": "The call is settled: permitted, used, denied or ended."}},
)
async def propose_call(
    body: CallBody, calls: Calls, request: Request, response: Response, key: Key = None
) -> CallAnswer:
    """Returns 201 if the call waits, 200 if it is settled. With `use`, the answer also uses the permit.

    A repeated request does not get the permit again, because the sender may have run the call. With an id of the
    attempt in `use` it does. Without an `Idempotency-Key`, an equal proposal of the same agent, session and person
    joins a call that is unused and whose result was not handed out.
    """
    with naming("`Idempotency-Key`", key):
        call = await calls.propose(body, key=key)
    response.status_code = 201 if call.answer.state in MOVING else 200
    response.headers["location"] = f"/v1/calls/{call.id}"
    return await _hand_out(request, calls, call)


@router.get("/{call}", summary="Read a call", response_model_exclude_defaults=True)
async def show_call(call: str, calls: Calls, request: Request, wait: Wait = 0.0, agent: Agent = None) -> CallAnswer:
    """Answers at once if the call is settled. Otherwise waits for a decision, for at most `wait` seconds."""
    own_call = await calls.wait(await calls.load(call, agent), wait)
    return await _hand_out(request, calls, own_call)


@router.get("/{call}/events", response_model=EventList, summary="List the events of a call")
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
    """The call's events in the form of `/v1/events`, for its own agent alone: read, wait or follow."""
    key = (await calls.load(call, agent)).turn.key
    # Includes a specialist's events: the call is the agent's own.
    wanted = EventFilter(key.tenant, key, with_private=True)
    part = EventPart(event_number(last_event_id) if last_event_id else after, wait, limit)
    return await answer_events(request, EventReader(deps, live), wanted, part)


@router.post("/{call}/use", summary="Use the permit of a call, once")
async def use_call(call: str, calls: Calls, key: UseKey = None, agent: Agent = None) -> PermitAnswer:
    """Returns the arguments to run the call with.

    409 `used`, `waiting`, `denied`, `lapsed`, `stale`, `frozen` or `ended`.

    The same key gets the same answer again, in case an answer was lost. Without a key, each request is a new attempt.
    """
    found = await calls.load(call, agent)
    with naming("call", call):
        used = (await calls.use(found, key)).answer
    return PermitAnswer(args=used.args or {}, key=used.key, note=used.note)


@router.post("/{call}/outcome", summary="Report the outcome of a used call", response_model_exclude_defaults=True)
async def report_call(call: str, body: OutcomeBody, calls: Calls, agent: Agent = None) -> CallAnswer:
    """409 `not_used` before the permit was used, `conflict` if another outcome was reported before."""
    with naming("call", call):
        return (await calls.report(await calls.load(call, agent), body)).answer


@router.delete("/{call}", summary="Withdraw an unused call", response_model_exclude_defaults=True)
async def withdraw_call(call: str, calls: Calls, request: Request, agent: Agent = None) -> CallAnswer:
    """Ends the request and revokes the permit. 409 `used` if the permit was used before."""
    found = await calls.load(call, agent)
    with naming("call", call):
        return await _hand_out(request, calls, await calls.withdraw(found))


async def _hand_out(request: Request, calls: OwnCalls, call: OwnCall) -> CallAnswer:
    """Before a result or denial leaves, closes the call to further proposals."""
    # A disconnected agent gets its result when it proposes the same call again.
    if call.answer.state in SETTLED and not await request.is_disconnected():
        await calls.hand_out(call)
    return call.answer
