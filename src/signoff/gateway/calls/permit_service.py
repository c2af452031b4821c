"""Uses permits of external calls: what is handed out is what the store has a claimed ticket for."""

import asyncio
from typing import Any, Final

from signoff.approvals.digest import digest_in_context
from signoff.contracts.activity_messages import UsedPermit, UseReply
from signoff.contracts.errors import BadRequest, ServerUnavailable
from signoff.contracts.responses import PermitAnswer
from signoff.engine.call_client import CallClient
from signoff.formats.replace import replace
from signoff.gateway.calls.call_reader import CALL, load_value, own_tickets, read_call
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.external_turn import ExternalTurn
from signoff.store.tickets import Ticket, digest_of_key

_USED: Final = "this permit was used already"


async def use_permit(deps: GatewayDeps, turn: ExternalTurn, use: str) -> PermitAnswer:
    """Uses the permit of a call with the try `use`. Raises `BadRequest` (409) with why it is not handed out."""
    # One at a time: a turn takes few Updates at once, and those who come too late are answered by the store.
    async with deps.tries.setdefault(turn.key.workflow_id, asyncio.Lock()):
        return await _use_permit(deps, turn, use)


async def _use_permit(deps: GatewayDeps, turn: ExternalTurn, use: str) -> PermitAnswer:
    own = own_tickets(turn, await deps.store.tickets_of_turn(turn.key.workflow_id))
    if own and own[-1].owner != use:
        raise _refusal("used", _USED)
    reply = await CallClient(deps.client).use(turn.key, use)
    if reply is None:
        answer = await read_call(deps, turn)
        code = "denied" if answer.state == "denied" else "ended"
        raise _refusal(code, answer.reason or "this call has ended")
    return await read_permit(deps, turn, reply, use)


async def read_permit(deps: GatewayDeps, turn: ExternalTurn, reply: UseReply, use: str) -> PermitAnswer:
    """Returns the permit that a turn handed out, as far as the store bears it out. Raises as `use_permit`."""
    if reply.permit is None:
        if reply.code == "unavailable":
            raise ServerUnavailable(reply.message)
        raise _refusal(reply.code or "ended", reply.message or "this call cannot be used")
    args = await load_value(deps, turn, reply.permit.args)
    if not await _is_borne_out(deps, turn, reply.permit, args, use):
        deps.store.count_refusal("unproved")
        raise _refusal("stale", "what the turn handed out is not what was permitted; nothing may be run")
    return PermitAnswer(args=args, key=reply.permit.key, note=reply.permit.note)


async def _is_borne_out(deps: GatewayDeps, turn: ExternalTurn, permit: UsedPermit, args: Any, use: str) -> bool:
    """Returns whether the ticket that the turn names was claimed by this try, for this call with these arguments.

    Whoever answers as the turn may say anything; only a tool's own activity, which has checked who permitted what,
    claims a ticket.
    """
    ticket = await deps.store.read_ticket(permit.key)
    if ticket is None or not isinstance(args, dict) or not _is_of(ticket, turn, use):
        return False
    ctx = replace(turn.ctx, user=replace(turn.requester, nonce=ticket.nonce))
    # By the definition that the turn names, as this gateway may have another: the ticket's digest binds it as well.
    digest = digest_in_context(ctx, call=CALL, tool=ticket.tool, definition=permit.definition, args=args)
    return digest == digest_of_key(permit.key)


def _is_of(ticket: Ticket, turn: ExternalTurn, use: str) -> bool:
    own = (turn.key.workflow_id, CALL, turn.call.tool, use)
    return ticket.state == "claimed" and (ticket.workflow, ticket.call, ticket.tool, ticket.owner) == own


def _refusal(code: str, message: str) -> BadRequest:
    return BadRequest(message, status=409, code=code)
