"""Measures external calls and their hand-written counterparts, one at a time and alternately."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import psutil
from temporalio.client import Client

from signoff.contracts.ids import TurnKey
from signoff.contracts.names import ENGINE
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.store.store import open_store
from signoff.temporal.embedded_server import ServerOptions, free_port, run_server
from signoff.worker import freeze_gc
from tools.bench.external_calls.agent_client import ExternalAgentClient, open_agent
from tools.bench.external_calls.hand_written import HandWritten
from tools.bench.external_calls.report import PERMIT, RUN, WHOLE, CallFigure, CallProcessor, CallsReport
from tools.bench.report import where
from tools.bench.sides import BASELINE, SIGNOFF
from tools.bench.turns import cpu_seconds, percentile

ROUNDS: Final = 5
CALLS: Final = 100
_WARM_CALLS: Final = 20
_REST_SECONDS: Final = 0.02
"""A pause after each call, so that its remaining work on the server does not slow the next one."""
Act = Callable[[], Awaitable[str]]
"""Makes one call and returns its id."""


async def measure(rounds: int, calls: int) -> CallsReport:
    with tempfile.TemporaryDirectory(prefix="signoff-bench-") as folder:
        options = ServerOptions(Path(folder) / "temporal.db", port=free_port(), ui_port=None)
        async with run_server(options) as server, open_store(f"sqlite:///{folder}/signoff.db") as store:
            client = await server.connect()
            signer = Signer(PrivateKeys(keys=(new_key(datetime.now(UTC)),)))
            hand = HandWritten(client, "bench-hand-written")
            async with hand.worker(), open_agent(client, store, signer, "bench-calls") as agent:
                return await _measure(client, hand, agent, psutil.Process(server.pid), rounds, calls)


async def _measure(
    client: Client, hand: HandWritten, agent: ExternalAgentClient, server: psutil.Process, rounds: int, calls: int
) -> CallsReport:
    kinds = {
        RUN: (hand.run, agent.run),
        PERMIT: (hand.permit, agent.permit),
        WHOLE: (partial(_whole, hand), partial(_whole, agent)),
    }
    await _play(client, kinds, 0, min(_WARM_CALLS, calls))
    freeze_gc()
    figures: list[CallFigure] = []
    for number in range(1, rounds + 1):
        played = await _play(client, kinds, number, calls)
        figures += played
        for each in played:
            print(each.line(), flush=True)
    processor = [
        await _take_processor(kind, side, act, server, calls)
        for kind, acts in kinds.items()
        if kind != PERMIT
        for side, act in zip((BASELINE, SIGNOFF), acts, strict=True)
    ]
    used = await agent.permit()
    await agent.report(used)
    return CallsReport(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        engine=ENGINE,
        where=await where(client),
        rounds=rounds,
        calls=calls,
        figures=tuple(figures),
        processor=tuple(processor),
        events_run=await _events(client, await agent.run()),
        events_used=await _events(client, used),
        events_asked=await _events(client, await agent.ask()),
    )


async def _play(client: Client, kinds: Mapping[str, tuple[Act, Act]], number: int, calls: int) -> list[CallFigure]:
    """Kinds and sides alternate, and so does the side that begins."""
    taken: dict[str, tuple[list[float], list[float]]] = {kind: ([], []) for kind in kinds}
    for index in range(calls):
        for kind, acts in kinds.items():
            for side in (0, 1) if index % 2 else (1, 0):
                began = time.perf_counter()
                call = await acts[side]()
                taken[kind][side].append((time.perf_counter() - began) * 1000)
                if kind != PERMIT:
                    await _await_end(client, call)
                await asyncio.sleep(_REST_SECONDS)
    return [
        CallFigure(kind=kind, number=number, hand_p50_ms=percentile(hand, 50), p50_ms=percentile(ours, 50))
        for kind, (hand, ours) in taken.items()
    ]


async def _take_processor(kind: str, side: str, act: Act, server: psutil.Process, calls: int) -> CallProcessor:
    own, theirs = time.process_time(), cpu_seconds(server)
    for _ in range(calls):
        await act()
    return CallProcessor(
        kind=kind,
        side=side,
        own_ms=(time.process_time() - own) * 1000 / calls,
        server_ms=(cpu_seconds(server) - theirs) * 1000 / calls,
    )


async def _whole(side: HandWritten | ExternalAgentClient) -> str:
    call = await side.permit()
    await side.report(call)
    return call


async def _await_end(client: Client, call: str) -> None:
    """The store may have answered the agent before its workflow ends."""
    await client.get_workflow_handle(_workflow_of(call)).result()


async def _events(client: Client, call: str) -> int:
    """Leave out timed-out workflow tasks."""
    await _await_end(client, call)
    history = await client.get_workflow_handle(_workflow_of(call)).fetch_history()
    return len(history.events)


def _workflow_of(call: str) -> str:
    """A hand-written call's id is its workflow's."""
    return TurnKey(*call.split(".")).workflow_id if "." in call else call
