"""Reads calls of external agents. An agent sees its own calls only, as far as the store confirms them."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.errors import NotFound, ServerUnavailable
from signoff.contracts.ids import ApprovalKey, SessionKey, TurnKey, is_id, show_code
from signoff.contracts.responses import CallAnswer
from signoff.contracts.turn import CallView, TurnView
from signoff.formats.nearest_name import quote_name
from signoff.formats.replace import replace
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.external_turn import ExternalTurn
from signoff.gateway.signed_start import SignedStart, signed_start_of
from signoff.store.content_store import load_in
from signoff.store.request_reader import LoadedRequest
from signoff.store.tickets import Ticket

CALL: Final = "c1.1"
"""The only call of an external agent's turn."""
_NAME_CHARS: Final = 200
_LAPSED_WORDS: Final = "the permit was not used in time"
_CANCELLED_WORDS: Final = "the call was withdrawn"
_REPORTED: Final = ("ok", "execution_failed", "in_doubt")


async def load_call(deps: GatewayDeps, name: str, agent: str, tenant: str) -> ExternalTurn:
    """Raises `NotFound` unless the call is this agent's, and `ServerUnavailable`."""
    parts = name.split(".")
    missing = NotFound(f"there is no call {quote_name(name, _NAME_CHARS)} of this agent")
    if len(parts) != 3 or not all(map(is_id, parts)) or parts[0] != tenant:
        raise missing
    recent = deps.recent_calls.find(name, deps.clock())
    if recent is not None and recent.given.actor == agent:
        return recent
    key = TurnKey(*parts)
    try:
        given = await deps.client.input_of(key)
    except NotFound:
        raise missing from None
    # Anyone who can start workflows could use any id: only the gateway's signature makes it an agent's call.
    begun = signed_start_of(key, given, (), deps.verifier(), development=deps.believes_unsigned)
    if given is None or given.external is None or begun.requester is None or given.actor != agent:
        raise missing
    if (given.tenant_id, given.session_id, given.turn_id) != key:
        raise missing
    turn = ExternalTurn(key, given, given.external, begun.requester)
    deps.recent_calls.keep(name, turn, deps.clock())
    return turn


async def read_call(deps: GatewayDeps, turn: ExternalTurn) -> CallAnswer:
    """Raises `StoreUnavailable`."""
    try:
        return await _answer(deps, turn, await deps.view(turn.key), await find_request(deps, turn))
    except ServerUnavailable:
        # Its worker is down, so the call waits.
        return begin_answer(deps, turn)


async def find_asked(deps: GatewayDeps, turn: ExternalTurn) -> CallAnswer | None:
    """Return the answer while approvers are asked, from the store alone. Otherwise `None`: read the turn.

    A query for each of thousands of waits would overload the server and workers.
    """
    try:
        asked = await find_request(deps, turn)
    except ServerUnavailable:
        return None
    if asked is None or asked.request.state != "pending":
        return None
    return replace(begin_answer(deps, turn), **_asked_facts(asked))


async def confirm_call(deps: GatewayDeps, turn: ExternalTurn, state: str, outcome: CallOutcome | None) -> CallAnswer:
    """Uses the turn's latest reply, as far as the store confirms it.

    Avoids a query: for a turn that has ended, a worker would replay its history.
    """
    call = CallView(call=CALL, tool=turn.call.tool, state=state, outcome=outcome)
    view = TurnView(
        tenant=turn.key.tenant,
        session=turn.key.session,
        turn=turn.key.turn,
        actor=turn.given.actor,
        state="running",
        requester=turn.requester,
        calls=(call,),
    )
    rows = await deps.requests.rows_of_turn(turn.key)
    own = tuple(each for each in rows.requests if each.requester.nonce == turn.requester.nonce)
    proved = await deps.prove(view, SignedStart(turn.key, turn.requester, own), rows.tickets)
    # Rules allow most calls: they have no request to read.
    return await _answer(deps, turn, proved, await find_request(deps, turn) if own else None)


async def answer_outcome(
    deps: GatewayDeps, turn: ExternalTurn, outcome: CallOutcome, asked: LoadedRequest | None
) -> CallAnswer:
    """For an outcome in the store. Raises `StoreUnavailable`."""
    return await _answer_end(deps, turn, begin_answer(deps, turn), outcome, asked, is_cancelled=False)


async def find_success(deps: GatewayDeps, turn: ExternalTurn) -> CallOutcome | None:
    """Return a success by the call's ticket.

    The turn may not know it yet. For all other outcomes the turn alone knows whether the call ends: a fallback may run,
    or approvers are asked.
    """
    tickets = own_tickets(turn, await deps.store.tickets_of_turn(turn.key.workflow_id))
    done = None if not tickets or tickets[-1].call != CALL else tickets[-1].outcome
    return done if done is not None and done.code == "ok" else None


def own_tickets(turn: ExternalTurn, tickets: Sequence[Ticket]) -> list[Ticket]:
    """Return tickets that permit a run, in order of their claims.

    Leaves out tickets of an earlier turn with the same id, and those that a person's answer took.
    """
    own = [each for each in tickets if each.nonce == turn.requester.nonce and each.state != "void"]
    return [each for each in own if each.outcome is None or each.outcome.code != "answered"]


def make_used_answer(deps: GatewayDeps, turn: ExternalTurn, args: dict[str, Any], key: str, note: str) -> CallAnswer:
    return replace(begin_answer(deps, turn), state="used", args=args, key=key, note=note)


def begin_answer(deps: GatewayDeps, turn: ExternalTurn) -> CallAnswer:
    return CallAnswer(id=turn.name, state="waiting", tool=turn.call.tool, page=deps.page_link(turn.key))


async def _answer(deps: GatewayDeps, turn: ExternalTurn, view: TurnView, asked: LoadedRequest | None) -> CallAnswer:
    base = begin_answer(deps, turn)
    call = next((each for each in view.calls if each.call == CALL), None)
    outcome = None if call is None else call.outcome
    if outcome is None and view.result is not None:
        outcome = next((each for each in view.result.calls if each.call == CALL), None)
        if outcome is None:
            # The turn ended before its call had an outcome.
            error = view.result.error
            words = _CANCELLED_WORDS if error is None else error.message
            return replace(base, state="denied", source="cancelled", reason=words)
    if outcome is not None:
        return await _answer_end(deps, turn, base, outcome, asked, is_cancelled=view.state == "cancelled")
    if call is None or (asked is not None and asked.request.state == "pending"):
        return base if asked is None else replace(base, **_asked_facts(asked))
    if call.state in ("running", "used"):
        # If Signoff runs the call, only its turn knows the approvers' edits and remarks.
        is_noted = (
            call.state == "running" and asked is not None and bool(asked.request.edited_by or asked.request.reason)
        )
        if not is_noted and (done := await find_success(deps, turn)) is not None:
            return await answer_outcome(deps, turn, done, asked)
        return replace(base, state=call.state)
    if call.state == "permitted":
        return replace(base, state=call.state, **await _permit_facts(deps, turn, asked))
    return base


async def find_request(deps: GatewayDeps, turn: ExternalTurn) -> LoadedRequest | None:
    """`None` if approvers were not asked. Raises `Unavailable`."""
    try:
        request = await deps.requests.load(ApprovalKey(turn.key, CALL).id)
    except NotFound:
        return None
    # A turn's id may be reused: an earlier turn's request does not belong to this call.
    return request if request.request.requester.nonce == turn.requester.nonce else None


def _asked_facts(asked: LoadedRequest) -> dict[str, Any]:
    return {"code": show_code(asked.request.code), "expires_at": asked.request.expires_at}


async def _permit_facts(deps: GatewayDeps, turn: ExternalTurn, asked: LoadedRequest | None) -> Mapping[str, Any]:
    if asked is None or asked.request.state != "approved":
        return {"args": await load_value(deps, turn, turn.call.args)}
    request = asked.request
    until = None if request.decided_at is None else request.decided_at + timedelta(seconds=request.grant_ttl)
    return {
        "args": dict(asked.args),
        "expires_at": until,
        "note": request.reason,
        **_deciders(asked),
    }


def _deciders(asked: LoadedRequest | None) -> dict[str, str]:
    if asked is None or asked.request.state not in ("approved", "happened"):
        return {}
    request = asked.request
    return {
        "decided_by": request.decided_name or request.decided_by,
        "edited_by": request.edited_name or request.edited_by,
    }


async def _answer_end(
    deps: GatewayDeps,
    turn: ExternalTurn,
    base: CallAnswer,
    outcome: CallOutcome,
    asked: LoadedRequest | None,
    *,
    is_cancelled: bool,
) -> CallAnswer:
    if outcome.code in _REPORTED:
        facts = {
            "state": "ended",
            "code": outcome.code,
            "result": await load_value(deps, turn, outcome.value),
            "note": outcome.note,
            **_deciders(asked),
        }
        return replace(base, **facts)
    denied = outcome.denied
    if denied is not None:
        facts = {"source": denied.source, "reason": denied.reason, "by": denied.decided_by}
    elif outcome.code == "answered":
        facts = _answered_facts(await load_value(deps, turn, outcome.value))
    elif outcome.code == "skipped":
        facts = {
            "source": "cancelled" if is_cancelled else "timeout",
            "reason": _CANCELLED_WORDS if is_cancelled else _LAPSED_WORDS,
        }
    else:
        words = await load_value(deps, turn, outcome.value)
        facts = {"source": "policy", "reason": words if isinstance(words, str) else str(words)}
    return replace(base, state="denied", **facts)


def _answered_facts(said: Any) -> dict[str, Any]:
    """Return a person's answer, as a denial: its agent must not run the call."""
    given: Mapping[str, Any] = said if isinstance(said, Mapping) else {}
    words = json.dumps(given.get("answer"), ensure_ascii=False)
    remark = f" {given['remark']}" if given.get("remark") else ""
    facts = {"source": "answered", "by": str(given.get("answered_by", "")), "result": given.get("answer")}
    return {**facts, "reason": f"A person answered instead of a run: {words}{remark}"}


async def load_value(deps: GatewayDeps, turn: ExternalTurn, content: Content) -> Any:
    """The value must belong to the turn's session. Raises `StoreUnavailable`."""
    return await load_in(deps.store, content, SessionKey(turn.key.tenant, turn.key.session))
