"""Withdraws calls of external agents that were not used."""

from typing import Final

from starlette.requests import Request

from signoff.approvals.audit_events import stop_entry
from signoff.calls.agent_calls import SETTLED
from signoff.contracts.errors import BadRequest
from signoff.contracts.responses import CallAnswer
from signoff.gateway.audit_writer import record
from signoff.gateway.calls.call_reader import read_call
from signoff.gateway.calls.call_wait import wait_for_call
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.external_turn import ExternalTurn
from signoff.store.tokens import ACTOR

_STOP_SECONDS: Final = 5.0


async def withdraw(deps: GatewayDeps, turn: ExternalTurn, request: Request) -> CallAnswer:
    """Has nobody asked about a call any more, and its permit worth nothing; returns how it stands then.

    Raises `BadRequest` (409, `used`) where its permit was used before.
    """
    before = await read_call(deps, turn)
    if before.state in SETTLED:
        return before
    if before.state == "used":
        raise BadRequest("this permit was used already; report what became of it", status=409, code="used")
    await deps.client.cancel_turn(turn.key)
    await record(deps.store, stop_entry(turn.key, f"{ACTOR}{turn.given.actor}", deps.clock()))
    answer = await wait_for_call(request, turn, _STOP_SECONDS, is_act=True)
    if answer.state == "used":
        raise BadRequest("this permit was used meanwhile; report what became of it", status=409, code="used")
    return answer
