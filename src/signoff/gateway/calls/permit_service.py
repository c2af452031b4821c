"""Uses the permits of external calls, takes the reports of their outcomes, and withdraws calls.

The store has a claimed ticket for each permit that is handed out. A report is in its ticket before its turn learns of
it. A late report is filed next to an outcome that was settled without the agent.
"""

import asyncio
from typing import Any, Final

from starlette.requests import Request

from signoff.approvals.audit_events import stop_entry
from signoff.approvals.call_events import finished_entry, late_report_entry
from signoff.approvals.digest import digest_in_context
from signoff.audit.log import entry_writer
from signoff.calls.agent_calls import SETTLED
from signoff.contracts.activity_messages import UsedPermit, UseReply
from signoff.contracts.call import CallOutcome, LateReport
from signoff.contracts.canonical_json import NotCanonical, canonical_json
from signoff.contracts.errors import BadRequest, Conflict, Refused, ServerUnavailable
from signoff.contracts.ids import SessionKey
from signoff.contracts.limits import ARGUMENTS_BYTES
from signoff.contracts.requests import OutcomeBody
from signoff.contracts.responses import CallAnswer, PermitAnswer
from signoff.engine.call_client import CallClient
from signoff.formats.replace import replace
from signoff.gateway.audit_writer import record
from signoff.gateway.calls.call_reader import CALL, answer_outcome, find_request, load_value, own_tickets, read_call
from signoff.gateway.calls.call_wait import wait_for_call
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.external_turn import ExternalTurn
from signoff.registry.results.dispatch_record import execution_facts
from signoff.store.content_store import to_content
from signoff.store.tickets import Ticket, digest_of_key
from signoff.store.tokens import ACTOR

_USED: Final = "this permit was used already"
_STOP_SECONDS: Final = 5.0


async def use_permit(deps: GatewayDeps, turn: ExternalTurn, use: str) -> PermitAnswer:
    """Raises `BadRequest` (409) with the reason of a refusal."""
    # One at a time: a turn accepts few Updates at once. The store answers late attempts.
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
    """Return the permit only if the store confirms it. Raises like `use_permit`."""
    if reply.permit is None:
        if reply.code == "unavailable":
            raise ServerUnavailable(reply.message)
        raise _refusal(reply.code or "ended", reply.message or "this call cannot be used")
    args = await load_value(deps, turn, reply.permit.args)
    if not await _is_borne_out(deps, turn, reply.permit, args, use):
        deps.store.count_refusal("unproved")
        raise _refusal("stale", "the turn's reply does not match the permit; run nothing")
    return PermitAnswer(args=args, key=reply.permit.key, note=reply.permit.note)


async def _is_borne_out(deps: GatewayDeps, turn: ExternalTurn, permit: UsedPermit, args: Any, use: str) -> bool:
    """Return whether this attempt claimed the named ticket.

    A forged turn can reply anything. Only the tool's own activity, which has checked the permit, claims a ticket.
    """
    ticket = await deps.store.read_ticket(permit.key)
    if ticket is None or not isinstance(args, dict) or not _is_of(ticket, turn, use):
        return False
    ctx = replace(turn.ctx, user=replace(turn.requester, nonce=ticket.nonce))
    # Use the definition that the turn names: this gateway may have another. The ticket's digest binds it too.
    digest = digest_in_context(ctx, call=CALL, tool=ticket.tool, definition=permit.definition, args=args)
    return digest == digest_of_key(permit.key)


def _is_of(ticket: Ticket, turn: ExternalTurn, use: str) -> bool:
    own = (turn.key.workflow_id, CALL, turn.call.tool, use)
    return ticket.state == "claimed" and (ticket.workflow, ticket.call, ticket.tool, ticket.owner) == own


def _refusal(code: str, message: str) -> BadRequest:
    return BadRequest(message, status=409, code=code)


async def report_outcome(deps: GatewayDeps, turn: ExternalTurn, body: OutcomeBody) -> CallAnswer:
    """Take the report of the agent that used the permit, once.

    A repeat gets the same answer. The store has the report before the turn learns of it: anyone with Temporal
    credentials can signal a turn. Raises `BadRequest` (409, `not_used`), `Conflict` if there is another outcome, and
    `Unavailable`: report again.
    """
    _check_size(body.result)
    rows = await deps.requests.rows_of_turn(turn.key)
    used = next((each for each in reversed(own_tickets(turn, rows.tickets)) if each.owner), None)
    if used is None:
        raise BadRequest("only a call whose permit was used can be reported", status=409, code="not_used")
    outcome = used.outcome or await _record(deps, turn, used, body)
    if (outcome.code, await load_value(deps, turn, outcome.value)) != (body.code, body.result):
        if outcome.code == "in_doubt" or outcome.decided_by:
            await _file_late(deps, turn, used, body)
        raise Conflict(_conflict_words(outcome))
    # Also for an earlier report: its gateway may have crashed before the turn learned of it.
    await CallClient(deps.client).tell_report(turn.key)
    own = any(each.requester.nonce == turn.requester.nonce for each in rows.requests)
    return await answer_outcome(deps, turn, outcome, await find_request(deps, turn) if own else None)


async def _record(deps: GatewayDeps, turn: ExternalTurn, used: Ticket, body: OutcomeBody) -> CallOutcome:
    place = SessionKey(turn.key.tenant, turn.key.session)
    value = await to_content(deps.store, body.result, place)
    outcome = CallOutcome(call=used.call, tool=used.tool, code=body.code, gate="execute", value=value)
    tool = deps.catalog.tool_view(turn.ctx).tool(used.tool)
    # Leave out the arguments: nothing here has bound them to the ticket.
    facts = {} if tool is None else execution_facts(tool, turn.ctx.actor, used.call)
    seen = entry_writer([finished_entry(turn.ctx, outcome, used.key, deps.clock(), facts)])
    try:
        # If the turn has given up, the outcome stays unknown: approvers may have been asked, and have answered.
        return await deps.store.record(used.key, outcome, also=seen, corrects=False)
    except Refused:
        raise Conflict("this call is recorded as without effect, and may have a new permit") from None


async def _file_late(deps: GatewayDeps, turn: ExternalTurn, used: Ticket, body: OutcomeBody) -> None:
    result = "" if body.result is None else body.result
    words = result if isinstance(result, str) else canonical_json(result).decode()
    report = LateReport(code=body.code, text=words, at=deps.clock())
    entry = late_report_entry(turn.ctx, used.call, used.tool, used.key, digest_of_key(used.key), report)
    await deps.store.file_late_report(used.key, report, also=entry_writer([entry]))


def _check_size(result: Any) -> None:
    try:
        size = len(canonical_json(result))
    except NotCanonical:
        raise BadRequest("`result` holds a number or text that JSON cannot carry; send it as a string") from None
    if size > ARGUMENTS_BYTES:
        raise BadRequest(
            "`result` is larger than 64 KiB; name a file or record that holds it", status=413, code="too_large"
        )


def _conflict_words(stands: CallOutcome) -> str:
    if stands.code == "in_doubt":
        return "the outcome is recorded as unknown, because it was not reported in time; this late report is filed"
    if stands.decided_by:
        return "a person has decided the outcome, because it was not reported in time; this late report is filed"
    return "another outcome of this call was reported before; the first report counts"


async def withdraw(deps: GatewayDeps, turn: ExternalTurn, request: Request) -> CallAnswer:
    """Return the state after the withdrawal. Raises `BadRequest` (409, `used`) if its permit was used before."""
    before = await read_call(deps, turn)
    if before.state in SETTLED:
        return before
    if before.state == "used":
        raise BadRequest("this permit was used already; report its outcome", status=409, code="used")
    await deps.client.cancel_turn(turn.key)
    await record(deps.store, stop_entry(turn.key, f"{ACTOR}{turn.given.actor}", deps.clock()))
    answer = await wait_for_call(request, turn, _STOP_SECONDS, is_act=True)
    if answer.state == "used":
        raise BadRequest("this permit was used before the withdrawal; report its outcome", status=409, code="used")
    return answer
