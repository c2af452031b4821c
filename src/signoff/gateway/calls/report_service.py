"""Takes reports of what became of external calls: each stands in its ticket before its turn hears of it.

A report that comes after the outcome was settled without its agent is filed beside that outcome.
"""

from typing import Any

from signoff.approvals.audit_events import finished_entry, late_report_entry
from signoff.audit.log import entry_writer
from signoff.contracts.call import CallOutcome, LateReport, Permit
from signoff.contracts.canonical_json import NotCanonical, canonical_json
from signoff.contracts.errors import BadRequest, Conflict, Refused
from signoff.contracts.ids import SessionKey
from signoff.contracts.limits import ARGUMENTS_BYTES
from signoff.contracts.requests import OutcomeBody
from signoff.contracts.responses import CallAnswer
from signoff.engine.call_client import CallClient
from signoff.gateway.calls.call_reader import answer_outcome, find_request, load_value, own_tickets
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.external_turn import ExternalTurn
from signoff.registry.results.dispatch_record import execution_facts
from signoff.store.content_store import to_content
from signoff.store.tickets import Ticket, digest_of_key


async def report_outcome(deps: GatewayDeps, turn: ExternalTurn, body: OutcomeBody) -> CallAnswer:
    """Takes the report of the agent that used a call's permit, once; the same again is answered the same.

    The store has it before the turn is told, as a turn may be told anything by whoever holds a Temporal credential.
    Raises `BadRequest` (409, `not_used`), `Conflict` where another outcome stands, `Unavailable`: report it again.
    """
    _check_size(body.result)
    rows = await deps.requests.rows_of_turn(turn.key)
    used = next((each for each in reversed(own_tickets(turn, rows.tickets)) if each.owner), None)
    if used is None:
        raise BadRequest("only a call whose permit was used can be reported", status=409, code="not_used")
    stands = used.outcome or await _record(deps, turn, used, body)
    if (stands.code, await load_value(deps, turn, stands.value)) != (body.code, body.result):
        if stands.code == "in_doubt" or stands.decided_by:
            await _file_late(deps, turn, used, body)
        raise Conflict(_conflict_words(stands))
    # Also of one that stood before: whoever wrote it may have been lost before the turn heard of it.
    await CallClient(deps.client).tell_report(turn.key)
    own = any(each.requester.nonce == turn.requester.nonce for each in rows.requests)
    return await answer_outcome(deps, turn, stands, await find_request(deps, turn) if own else None)


async def _record(deps: GatewayDeps, turn: ExternalTurn, used: Ticket, body: OutcomeBody) -> CallOutcome:
    place = SessionKey(turn.key.tenant, turn.key.session)
    value = await to_content(deps.store, body.result, place)
    outcome = CallOutcome(call=used.call, tool=used.tool, code=body.code, gate="execute", value=value)
    permit = _permit(turn, used)
    tool = deps.catalog.tool_view(permit.ctx).tool(used.tool)
    # Not its arguments: nothing here has bound them to the permit.
    facts = {} if tool is None else execution_facts(tool, permit)
    seen = entry_writer([finished_entry(permit, outcome, used.key, deps.clock(), facts)])
    try:
        # What its turn has given up stays in doubt: people may have been asked about it, and have answered.
        return await deps.store.record(used.key, outcome, also=seen, corrects=False)
    except Refused:
        raise Conflict("this call is known to have come to nothing, and may have been permitted anew") from None


async def _file_late(deps: GatewayDeps, turn: ExternalTurn, used: Ticket, body: OutcomeBody) -> None:
    now = deps.clock()
    result = "" if body.result is None else body.result
    words = result if isinstance(result, str) else canonical_json(result).decode()
    report = LateReport(code=body.code, text=words, at=now)
    entry = late_report_entry(_permit(turn, used), used.key, report, used.tool, now)
    await deps.store.file_late_report(used.key, report, also=entry_writer([entry]))


def _permit(turn: ExternalTurn, used: Ticket) -> Permit:
    return Permit(kind="auto", call=used.call, digest=digest_of_key(used.key), ctx=turn.ctx)


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
        return "it was not reported in time and is recorded as in doubt; this report is kept beside it"
    if stands.decided_by:
        return "it was not reported in time, and a person has said what became of it; this report is kept beside it"
    return "another outcome of this call was reported before; the first one stands"
