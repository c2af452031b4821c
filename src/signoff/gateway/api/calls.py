"""The API of external calls: propose, read, use once, report, withdraw."""

from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from signoff.contracts.audit import EventList
from signoff.contracts.errors import BadRequest, StoreUnavailable
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
from signoff.gateway.auth.caller import AuthenticatedCaller, own_tenant
from signoff.gateway.auth.dependencies import Deps, LiveUpdates, TokenAgent
from signoff.gateway.auth.streams import waiting
from signoff.gateway.calls.call_proposer import agent_of, hand_out, propose
from signoff.gateway.calls.call_reader import MOVING, confirm_call, load_call, make_used_answer, read_call
from signoff.gateway.calls.call_refusals import naming
from signoff.gateway.calls.call_withdrawal import SETTLED, withdraw
from signoff.gateway.calls.external_turn import ExternalTurn
from signoff.gateway.calls.permit_service import read_permit, use_id, use_permit
from signoff.gateway.calls.report_service import report_outcome
from signoff.gateway.deps import GatewayDeps
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


@router.post(
    "",
    status_code=201,
    summary="Propose a call",
    response_model_exclude_defaults=True,
    responses={200: {"model": CallAnswer, "description": "It is settled: permitted, used, denied or ended."}},
)
async def propose_call(
    body: CallBody, deps: Deps, caller: TokenAgent, request: Request, response: Response, key: Key = None
) -> CallAnswer:
    """201 where it waits, 200 where it is settled. With `use` a call that is permitted is used in the same answer.

    Sent again it is not handed out again, as whoever sends it may have run it; with an id of the try in `use` it is.
    Without an `Idempotency-Key` an equal proposal of the same agent, session and person joins a call that was not used
    and whose result was not handed out yet.
    """
    with naming("`Idempotency-Key`", key):
        return await _propose(body, deps, caller, request, response, key)


async def _propose(
    body: CallBody,
    deps: GatewayDeps,
    caller: AuthenticatedCaller | None,
    request: Request,
    response: Response,
    key: str | None,
) -> CallAnswer:
    own = body.use if isinstance(body.use, str) else None
    use = use_id(own) if body.use else ""
    turn, reply = await propose(deps, body, caller, key, use)
    is_begun_here = reply is not None and reply.nonce == turn.requester.nonce
    if reply is not None and reply.permit is not None and (is_begun_here or own is None):
        answer = await _answer_used(deps, turn, await read_permit(deps, turn, reply, use))
    elif reply is not None and is_begun_here and (reply.state not in MOVING or not body.wait):
        answer = await confirm_call(deps, turn, reply.state, reply.outcome)
    else:
        # It was begun by an earlier request, or is waited for.
        turn = await load_call(deps, turn.name, turn.given.actor, turn.key.tenant)
        async with waiting(request, body.wait, turn.name) as seconds:
            answer = await read_call(deps, turn, seconds)
    if body.use and answer.state == "permitted":
        answer = await _answer_used(deps, turn, await use_permit(deps, turn, use))
    elif own is not None and answer.state == "used":
        answer = await _answer_again(deps, turn, use, answer)
    response.status_code = 201 if answer.state in MOVING else 200
    response.headers["location"] = f"/v1/calls/{answer.id}"
    return await _handed_out(request, deps, turn, answer)


@router.get("/{call}", summary="One call as it stands", response_model_exclude_defaults=True)
async def show_call(
    call: str, deps: Deps, caller: TokenAgent, request: Request, wait: Wait = 0.0, agent: Agent = None
) -> CallAnswer:
    """Answers at once where it is settled; else when people have answered, after `wait` seconds at the latest."""
    turn = await _load(deps, call, caller, agent)
    async with waiting(request, wait, turn.name) as seconds:
        answer = await read_call(deps, turn, seconds)
    return await _handed_out(request, deps, turn, answer)


@router.get("/{call}/events", response_model=EventList, summary="The steps of a call")
async def list_call_events(
    call: str,
    request: Request,
    deps: Deps,
    caller: TokenAgent,
    live: LiveUpdates,
    after: After = 0,
    wait: EventWait = 0,
    limit: EventLimit = 100,
    last_event_id: LastEventId = None,
    agent: Agent = None,
) -> EventList | StreamingResponse:
    """What happened to it, as `/v1/events` tells it, for its own agent alone: to be waited for, or followed."""
    turn = await _load(deps, call, caller, agent)
    # Also those of a specialist, whose call it is.
    wanted = EventFilter(turn.key.tenant, turn.key, with_private=True)
    part = EventPart(event_number(last_event_id) if last_event_id else after, wait, limit)
    return await answer_events(request, EventReader(deps, live), wanted, part)


@router.post("/{call}/use", summary="Use the permit of a call, once")
async def use_call(call: str, deps: Deps, caller: TokenAgent, key: UseKey = None, agent: Agent = None) -> PermitAnswer:
    """The arguments to run it with. 409 `used`, `waiting`, `denied`, `lapsed`, `stale`, `frozen` or `ended`.

    Whoever sends a key gets the same answer for the same key, as an answer may be lost; without one each request is a
    try of its own.
    """
    turn = await _load(deps, call, caller, agent)
    with naming("call", call):
        permit = await use_permit(deps, turn, use_id(key))
    await _release_used(deps, turn)
    return permit


@router.post("/{call}/outcome", summary="Report what became of a used call", response_model_exclude_defaults=True)
async def report_call(call: str, body: OutcomeBody, deps: Deps, caller: TokenAgent, agent: Agent = None) -> CallAnswer:
    """409 `not_used` before its permit was used, `conflict` where another outcome was reported before."""
    with naming("call", call):
        return await report_outcome(deps, await _load(deps, call, caller, agent), body)


@router.delete("/{call}", summary="Withdraw a call that was not used", response_model_exclude_defaults=True)
async def withdraw_call(call: str, deps: Deps, caller: TokenAgent, request: Request, agent: Agent = None) -> CallAnswer:
    """Nobody is asked any more, and its permit is worth nothing. 409 `used` where it was used before."""
    turn = await _load(deps, call, caller, agent)
    with naming("call", call):
        return await _handed_out(request, deps, turn, await withdraw(deps, turn, request))


async def _load(deps: GatewayDeps, call: str, caller: AuthenticatedCaller | None, agent: str | None) -> ExternalTurn:
    tenant = own_tenant(caller, None)
    name, _ = agent_of(deps, caller, agent)
    return await load_call(deps, call, name, tenant)


async def _handed_out(request: Request, deps: GatewayDeps, turn: ExternalTurn, answer: CallAnswer) -> CallAnswer:
    """Returns an answer; one that tells a result, or a denial, only once no proposal joins its call any more."""
    # Whoever went away while it waited is told nothing, and finds its result when it proposes the same again.
    if answer.state in SETTLED and not await request.is_disconnected():
        await hand_out(deps, turn)
    return answer


async def _release_used(deps: GatewayDeps, turn: ExternalTurn) -> None:
    # Its ticket says in any case that it was used: nobody who proposes the same later is kept by what fails here.
    with suppress(StoreUnavailable):
        await hand_out(deps, turn)


async def _answer_again(deps: GatewayDeps, turn: ExternalTurn, use: str, answer: CallAnswer) -> CallAnswer:
    """Returns the permit that the try `use` was handed before; `answer` where another try was."""
    try:
        return await _answer_used(deps, turn, await use_permit(deps, turn, use))
    except BadRequest:
        return answer


async def _answer_used(deps: GatewayDeps, turn: ExternalTurn, permit: PermitAnswer) -> CallAnswer:
    await _release_used(deps, turn)
    return make_used_answer(deps, turn, permit.args, permit.key, permit.note)
