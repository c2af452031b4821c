"""The API of sessions: send a message, pass a late result, read a conversation, list sessions."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request, Response

from signoff.contracts.errors import Refused
from signoff.contracts.ids import SessionKey, TurnKey, parse_approval_id, session_name, turn_name
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import ResultBody, SayBody
from signoff.contracts.responses import SessionLinks, SessionList, SessionMessageReply
from signoff.contracts.session_messages import SessionReceipt, SessionView
from signoff.formats.replace import replace
from signoff.gateway.api.faults import FAULTS
from signoff.gateway.approvals.api_attempts import ApiAttempt, decide_part
from signoff.gateway.approvals.open_requests import add_requests_to_session
from signoff.gateway.auth.caller import AuthenticatedCaller, acting_person, channel_of, own_tenant, person_of, scopes_of
from signoff.gateway.auth.dependencies import Deps, TokenReader, TokenStarter, require_scope
from signoff.gateway.auth.person_lookup import known_person
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.languages import formatter_in
from signoff.gateway.session_names import is_own, own_session
from signoff.gateway.transport.json_route import JsonRoute
from signoff.gateway.turn_starter import add_result, read_session, say
from signoff.texts.endings import written_receipt

router = APIRouter(prefix="/v1/sessions", tags=["sessions"], responses=FAULTS, route_class=JsonRoute)
_TAKEN: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": SessionMessageReply, "description": "A repeat of an earlier message. Changes nothing."},
    202: {
        "model": SessionMessageReply,
        "description": "All workers are down. The message is stored and taken in later.",
    },
    429: {
        **FAULTS[429],
        "description": "The session has too many waiting messages, or the tenant has reached its limit of turns.",
    },
}


@router.get("", summary="List sessions, newest first")
async def list_sessions(
    deps: Deps, caller: TokenReader, tenant: str | None = None, limit: Annotated[int, Query(ge=1, le=500)] = 50
) -> SessionList:
    """Lists the sessions that the caller may read, with the codes of their pending requests.

    Comes from visibility and store. A new session may be missing for some milliseconds.
    """
    own, person = own_tenant(caller, tenant), person_of(caller)
    what = ("api sessions", own, limit)
    sessions = await deps.lists.share(
        person, scopes_of(caller), what, lambda: Conversations(deps).sessions(own, person, limit)
    )
    return SessionList(sessions=tuple(sessions))


@router.post(
    "/{session}/messages",
    status_code=201,
    summary="Send a message; starts the session if it is new",
    responses=_TAKEN,
)
async def say_something(
    session: str, body: SayBody, request: Request, deps: Deps, caller: TokenStarter, response: Response
) -> SessionMessageReply:
    """Messages are answered in order of arrival.

    A turn that waits for approvers does not block the next. A message of `approval-response` parts starts no turn: it
    decides requests of the session's turns like `/v1/approvals`, with the scope `decide` and one receipt for each part.

    `session` is `<tenant>.<session>`, or the session alone: an id from an answer, or the caller's own name for it.
    Names of other people do not collide. The same `id` again is the same message.
    """
    named = _key(session, caller)
    if body.parts:
        return await _answer_requests(deps, named, body, request, caller, response)
    own = body.user if "user" in body.model_fields_set else None
    user = acting_person(deps, caller, own, default=body.user, tenant=named.tenant)
    body = replace(body, user=user.id)
    person = known_person(deps.people, body.user, named.tenant)
    key = own_session(named, person, development=deps.development)
    return _answer(deps, key, await say(deps, body, key, channel="api"), response)


@router.post("/{session}/results", status_code=201, summary="Pass a late result to a turn", responses=_TAKEN)
async def hand_over(
    session: str, body: ResultBody, deps: Deps, caller: TokenStarter, response: Response
) -> SessionMessageReply:
    """A running turn reads the result itself. Otherwise the next turn of the same actor starts at once."""
    key = _key(session, caller)
    if caller is not None:
        view = await Conversations(deps).named_session(key, caller.person)
        key = SessionKey(view.tenant, view.session)
        if not deps.development and not is_own(key, caller.person.id):
            # The turn acts on the result in the owner's name.
            raise Refused("only the session's owner can pass results to its turns", code="not_allowed")
    return _answer(deps, key, await add_result(deps, body, key), response)


@router.get("/{session}", summary="Read a session")
async def show_session(session: str, deps: Deps, caller: TokenReader) -> SessionView:
    """Returns its turns, oldest first, and unanswered messages. `/v1/turns/{turn}` has each turn's calls."""
    view = await Conversations(deps).named_session(_key(session, caller), person_of(caller))
    return await add_requests_to_session(view, deps.requests, deps.settings.public_url)


async def _answer_requests(
    deps: GatewayDeps,
    named: SessionKey,
    body: SayBody,
    request: Request,
    caller: AuthenticatedCaller | None,
    response: Response,
) -> SessionMessageReply:
    require_scope(request, caller, "decide")
    own = own_session(named, person_of(caller), development=deps.development)
    named_as = body.user if "user" in body.model_fields_set else None
    channel, receipts = channel_of(request), []
    for part in body.parts:
        attempt = ApiAttempt(caller, named_as, body.id, str(part), channel)
        receipts.append(await decide_part(deps, part, attempt, (named, own)))
    words = formatter_in(request, person_of(caller), deps.clock())
    counted = [each.approval_id for each in receipts if each.status != "refused"]
    key = parse_approval_id(counted[0]) if counted else None
    place = named if key is None else SessionKey(key.turn.tenant, key.turn.session)
    reply = _answer(deps, place, _sum_up(receipts, "" if key is None else key.turn.turn), response)
    response.status_code = 200
    return replace(reply, receipts=tuple(written_receipt(each, words) for each in receipts))


def _sum_up(receipts: Sequence[Receipt], turn: str) -> SessionReceipt:
    """`turn` belongs to the first receipt that is not a refusal."""
    states = {each.status for each in receipts}
    status: Literal["accepted", "refused", "pending"] = "refused" if states == {"refused"} else "accepted"
    return SessionReceipt(status="pending" if "pending" in states else status, turn=turn)


def _answer(deps: GatewayDeps, key: SessionKey, receipt: SessionReceipt, response: Response) -> SessionMessageReply:
    name = session_name(key)
    turn = turn_name(TurnKey(*key, receipt.turn)) if receipt.turn else ""
    links = SessionLinks(
        self=f"/v1/sessions/{name}", turn=f"/v1/turns/{turn}" if turn else "", page=deps.session_link(key)
    )
    response.status_code = 202 if receipt.status == "pending" else 200 if receipt.code else 201
    response.headers["location"] = links.self
    return SessionMessageReply(
        id=name,
        tenant=key.tenant,
        session=key.session,
        turn=receipt.turn,
        status=receipt.status,
        code=receipt.code,
        message=receipt.message,
        links=links,
    )


def _key(session: str, caller: AuthenticatedCaller | None) -> SessionKey:
    key = read_session(session, own_tenant(caller, None))
    own_tenant(caller, key.tenant)
    return key
