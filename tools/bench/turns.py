"""Time and size of turns: throughput at high concurrency, latency at concurrency one, and history sizes."""

import asyncio
import math
import time
from collections.abc import Iterable, Sequence

import psutil
from temporalio.client import Client

from tools.bench.report import Latency, Rate, Round, Settings, Size
from tools.bench.sides import AUTOMATIC, HUMAN, Side, Turns


async def many(side: Turns, turns: int, concurrency: int, server: psutil.Process, kind: str = HUMAN) -> Rate:
    """At most `concurrency` turns run at a time."""
    left = iter(range(turns))

    async def work() -> None:
        for _ in left:
            await _whole(side, kind)

    own, theirs, began = time.process_time(), cpu_seconds(server), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, turns)):
            group.create_task(work())
    return Rate(
        turns_per_second=turns / (time.perf_counter() - began),
        own_cpu_ms=(time.process_time() - own) * 1000 / turns,
        server_cpu_ms=(cpu_seconds(server) - theirs) * 1000 / turns,
    )


async def one_by_one(sides: Sequence[Turns], turns: int) -> dict[str, list[float]]:
    """Return the milliseconds from sending each decision to receiving its result, by side.

    The sides alternate with every turn, so that all meet the same load of the machine.
    """
    taken: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(turns):
        for side in sides if number % 2 else sides[::-1]:
            turn = await side.start(HUMAN)
            await side.suspended(turn)
            began = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                group.create_task(side.decide(turn))
                group.create_task(side.finished(turn))
            taken[side.name].append((time.perf_counter() - began) * 1000)
    return taken


async def play_rounds(sides: tuple[Side, Side], settings: Settings, server_pid: int) -> list[Round]:
    """The sides alternate within a round, and so does the side that begins."""
    played: list[Round] = []
    server = psutil.Process(server_pid)
    for side in sides:
        await many(side, settings.concurrency, settings.concurrency, server)
    for number in range(1, settings.rounds + 1):
        order = sides if number % 2 else sides[::-1]
        rates = {side.name: await many(side, settings.turns, settings.concurrency, server) for side in order}
        latencies = await one_by_one(sides, settings.latency_turns)
        for side in sides:
            rate, taken = rates[side.name].model_dump(), latencies[side.name]
            latency = Latency(p50_ms=percentile(taken, 50), p99_ms=percentile(taken, 99))
            played.append(Round(number=number, side=side.name, decision_to_done=latency, **rate))
            print(played[-1].line(), flush=True)
    return played


async def measure_size(client: Client, side: Side) -> Size:
    events: list[int] = []
    sizes: list[int] = []
    for turn in (await _whole(side, AUTOMATIC), await _whole(side, HUMAN)):
        info = (await client.get_workflow_handle(turn).describe()).raw_description.workflow_execution_info
        events.append(info.history_length)
        sizes.append(info.history_size_bytes)
    return Size(
        side=side.name,
        events_automatic=events[0],
        events_human=events[1],
        bytes_automatic=sizes[0],
        bytes_human=sizes[1],
    )


def percentile(values: Iterable[float], rank: float) -> float:
    """Return the smallest of `values` that at least `rank` percent of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * rank / 100), 1) - 1]


def cpu_seconds(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)


async def _whole(side: Turns, kind: str) -> str:
    turn = await side.start(kind)
    if kind == HUMAN:
        await side.suspended(turn)
        await side.decide(turn)
    await side.finished(turn)
    return turn
