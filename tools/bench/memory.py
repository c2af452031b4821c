"""Memory of a suspended turn: the resident set of a worker's process at n and at 2n cached turns.

`python -m tools.bench.memory SIDE ADDRESS TASK_QUEUE METRICS_PORT STORE_URL` is that process.
"""

import asyncio
import contextlib
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator

import httpx2
import psutil
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig

from signoff.store.store import open_store
from signoff.temporal.embedded_server import free_port
from signoff.temporal.server_connection import LOOPBACK, connect
from signoff.worker import freeze_gc
from tools.bench.report import Memory
from tools.bench.sides import BASELINE, HUMAN, Baseline, Gated, Side

_READY = b"ready\n"
_SETTLE_SECONDS = 3.0
_TRIES = 50
_CACHED = re.compile(r"^temporal_sticky_cache_size\{[^}]*\} (\d+)", re.MULTILINE)


async def measure_memory(side: Side, address: str, task_queue: str, store_url: str, turns: int) -> Memory:
    """Return kB per suspended turn, between `turns` and twice as many. No other worker polls the queue."""
    port = free_port()
    async with _worker_process(side.name, address, task_queue, str(port), store_url) as process:
        first = await _resident(process, side, turns, turns, port)
        second = await _resident(process, side, turns, 2 * turns, port)
    return Memory(side=side.name, turns=turns, first_kb=first, second_kb=second)


async def _resident(process: Process, side: Side, more: int, total: int, port: int) -> float:
    left = iter(range(more))

    async def work() -> None:
        for _ in left:
            await side.suspended(await side.start(HUMAN))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(50, more)):
            group.create_task(work())
    await _all_cached(port, total)
    await asyncio.sleep(min(_SETTLE_SECONDS, total / 100))
    return psutil.Process(process.pid).memory_info().rss / 1000


async def _all_cached(port: int, total: int) -> None:
    """Raise `RuntimeError` if some turns were evicted."""
    cached = -1
    async with httpx2.AsyncClient() as http:
        for _ in range(_TRIES):
            text = (await http.get(f"http://{LOOPBACK}:{port}/metrics")).text
            cached = sum(int(count) for count in _CACHED.findall(text))
            if cached == total:
                return
            await asyncio.sleep(0.1)
    raise RuntimeError(f"{cached} turns are cached where {total} were suspended: the figure would mean nothing")


@contextlib.asynccontextmanager
async def _worker_process(*arguments: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tools.bench.memory", *arguments, stdout=PIPE)
    try:
        if process.stdout is None or await process.stdout.readline() != _READY:
            raise RuntimeError("the worker process did not start")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _serve(name: str, address: str, task_queue: str, port: str, store_url: str) -> None:
    metrics = PrometheusConfig(bind_address=f"{LOOPBACK}:{port}")
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(metrics=metrics)))
    client = await connect(address)
    async with open_store(store_url) as store:
        side = Baseline(client, task_queue) if name == BASELINE else await Gated.open(client, task_queue, store)
        freeze_gc()
        async with side.worker():
            sys.stdout.buffer.write(_READY)
            sys.stdout.buffer.flush()
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
