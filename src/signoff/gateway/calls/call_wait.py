"""Waits for external calls: holds a request until approvers have decided."""

import asyncio
from itertools import chain, repeat
from typing import Final

from starlette.requests import Request

from signoff.calls.agent_calls import MOVING, Watch
from signoff.contracts.responses import CallAnswer
from signoff.gateway.auth.streams import HeldSeconds, waiting
from signoff.gateway.calls.call_reader import read_call
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.external_turn import ExternalTurn
from signoff.gateway.live import Live

_LOOK_SECONDS: Final = (0.05, 0.1, 0.2, 0.4)
"""Seconds between looks at a call during a wait. The last one repeats."""


async def wait_for_call(
    request: Request, turn: ExternalTurn, seconds: float, watch: Watch | None = None, *, is_act: bool = False
) -> CallAnswer:
    """Return the call in its final state, or its state after `seconds`; see `AgentCalls.wait`.

    A wait after an act that has happened (`is_act`) is never refused.
    """
    deps: GatewayDeps = request.app.state.deps
    answer = await read_call(deps, turn)
    if answer.state not in MOVING:
        return answer
    async with waiting(request, seconds, "" if is_act else turn.name) as held:
        return await _look_on(request, deps, turn, answer, held, watch)


async def _look_on(
    request: Request,
    deps: GatewayDeps,
    turn: ExternalTurn,
    answer: CallAnswer,
    seconds: HeldSeconds,
    watch: Watch | None,
) -> CallAnswer:
    live: Live = request.app.state.live
    clock = asyncio.get_running_loop().time
    until = clock() + seconds
    for pause in chain(_LOOK_SECONDS, repeat(_LOOK_SECONDS[-1])):
        left = until - clock()
        if left <= 0 or await request.is_disconnected() or not await live.pause(min(pause, left)):
            break
        answer = await read_call(deps, turn)
        if answer.state not in MOVING or (watch is not None and not await watch(answer)):
            break
    return answer
