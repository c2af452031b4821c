"""Waits for external calls: holds a request until approvers have decided."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import Final

from starlette.requests import Request

from signoff.calls.agent_calls import MOVING, Watch
from signoff.contracts.responses import CallAnswer
from signoff.gateway.auth.streams import HeldSeconds, waiting
from signoff.gateway.calls.call_reader import find_asked, read_call
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.external_turn import ExternalTurn, KnownCall
from signoff.gateway.live import Live

_LOOK_SECONDS: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0)
"""Seconds between looks at a call whose turn moves. A change of its rows begins them again, the last one repeats."""
WATCH_SECONDS: Final = 0.5
"""Seconds between two calls of a `Watch`."""
_LATE: Final = 0.02
"""Seconds after a deadline until its turn is read."""


async def wait_for_call(
    request: Request, turn: ExternalTurn, seconds: float, watch: Watch | None = None, *, is_act: bool = False
) -> CallAnswer:
    """Return the call in its final state, or its state after `seconds`; see `AgentCalls.wait`.

    A wait after an act that has happened (`is_act`) is never refused. While approvers are asked, a wait reads only the
    store. Without a wait, the turn is read.
    """
    deps: GatewayDeps = request.app.state.deps
    asked = await _read(deps, turn, is_fresh=seconds <= 0)
    if asked.answer.state not in MOVING:
        return asked.answer
    async with waiting(request, seconds, "" if is_act else turn.name) as held:
        return await _look_on(request, deps, turn, asked, held, watch)


async def _read(deps: GatewayDeps, turn: ExternalTurn, *, is_fresh: bool = False) -> KnownCall:
    """Read the turn only if its rows have changed and ask no approvers, its deadline has passed, or `is_fresh`."""
    # Read the stamp first: a later change then differs from it.
    stamp = (await deps.turn_watch.read([turn.key]))[turn.key]
    known = deps.asked_calls.find(turn.name, deps.clock())
    is_known = known is not None and known.stamp == stamp and _asked_seconds(known.answer, deps.clock()) > 0
    if known is not None and is_known and not is_fresh:
        # Equal rows mean the same turn: keep both as long as an agent waits, however long that is.
        deps.recent_calls.keep(turn.name, turn, deps.clock())
        deps.asked_calls.keep(turn.name, known, deps.clock())
        return known
    answer = await find_asked(deps, turn) if stamp.has_question and not is_fresh else None
    if answer is None or _asked_seconds(answer, deps.clock()) <= 0:
        answer = await read_call(deps, turn)
    asked = KnownCall(stamp, answer)
    if stamp.has_question and _asked_seconds(asked.answer, deps.clock()) > 0:
        deps.asked_calls.keep(turn.name, asked, deps.clock())
    return asked


async def _look_on(
    request: Request,
    deps: GatewayDeps,
    turn: ExternalTurn,
    asked: KnownCall,
    seconds: HeldSeconds,
    watch: Watch | None,
) -> CallAnswer:
    live: Live = request.app.state.live
    clock = asyncio.get_running_loop().time
    until, pauses = clock() + seconds, _pauses()
    look_at = clock() + _pause(asked, deps.clock(), pauses)
    with deps.turn_watch.follow({turn.key: asked.stamp}) as follower, live.waking(follower.wake):
        leaving = asyncio.create_task(_leave(request))
        leaving.add_done_callback(lambda _: follower.wake())
        try:
            while (left := until - clock()) > 0 and not live.is_closing and not leaving.done():
                pause = min(left, look_at - clock(), left if watch is None else WATCH_SECONDS)
                changed = await follower.wait(max(pause, 0.0))
                if changed:
                    pauses = _pauses()
                if changed or clock() >= look_at:
                    asked = await _read(deps, turn)
                    look_at = clock() + _pause(asked, deps.clock(), pauses)
                if asked.answer.state not in MOVING or (watch is not None and not await watch(asked.answer)):
                    break
        finally:
            leaving.cancel()
    return asked.answer


async def _leave(request: Request) -> None:
    """Return when the client has disconnected. The route has read the request's body."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _pauses() -> Iterator[float]:
    return chain(_LOOK_SECONDS, repeat(_LOOK_SECONDS[-1]))


def _pause(asked: KnownCall, now: datetime, pauses: Iterator[float]) -> float:
    """Return the seconds until the next look. While approvers are asked, that is the deadline."""
    left = _asked_seconds(asked.answer, now)
    return left + _LATE if asked.stamp.has_question and left > 0 else next(pauses)


def _asked_seconds(answer: CallAnswer, now: datetime) -> float:
    """Return the seconds until a request's deadline, or 0 if its call does not wait for approvers."""
    if answer.state != "waiting" or not answer.code:
        return 0.0
    return ((answer.expires_at or _NEVER) - now).total_seconds()


_NEVER: Final = datetime.max.replace(tzinfo=UTC)
