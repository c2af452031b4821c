"""Loads an installation: decisions at a steady rate through two gateways, and a burst of starts."""

import asyncio
import time
from collections import defaultdict
from typing import Any

from tools.bench.scale.report import Spread, spread, spreads
from tools.bench.scale.stack import Stack, StackFailed, resident_mb
from tools.bench.scale.waiting import decide, is_complete, list_waiting, start_turns, wait_for
from tools.bench.turns import percentile

GATEWAYS = 2
STARTS_AT_ONCE = 200


async def measure_decisions(stack: Stack, a_minute: int, minutes: float) -> dict[str, Spread]:
    """Two gateways take turns. Each decision starts on time, whether or not others are done."""
    await stack.start_worker()
    gateways = [await stack.start_gateway() for _ in range(GATEWAYS)]
    number = round(a_minute * minutes)
    async with stack.http(gateways[0], "rui") as rui:
        await start_turns(rui, number)
    await wait_for(stack, number)
    figures: dict[str, list[float]] = defaultdict(list)
    clients = [stack.http(each, "ana") for each in gateways]
    try:
        waiting = await _every_request(stack, clients[0], number)
        began = time.perf_counter()

        async def one(place: int, request: dict[str, Any]) -> None:
            due = began + place * 60 / a_minute
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await decide(clients[place % GATEWAYS], request["id"])
            figures["receipt, ms"].append((time.perf_counter() - due) * 1000)
            await is_complete(stack, request)
            figures["done, ms"].append((time.perf_counter() - due) * 1000)

        await asyncio.gather(*(one(place, request) for place, request in enumerate(waiting)))
        took = time.perf_counter() - began
    finally:
        for client in clients:
            await client.aclose()
    left = await stack.waiting()
    if left:
        raise StackFailed(f"{left} turns wait still")
    return spreads(
        {
            "decisions done a minute": [len(figures["done, ms"]) / took * 60],
            **{
                f"{name}, p{rank}": [percentile(values, rank)]
                for name, values in figures.items()
                for rank in (50, 95, 99)
            },
        }
    )


async def measure_burst(stack: Stack, number: int) -> dict[str, Spread]:
    """A person reads the list of waiting requests during the burst."""
    worker, gateway = await stack.start_worker(), await stack.start_gateway()
    lists: list[float] = []

    async def look() -> None:
        async with stack.http(gateway, "ana") as ana:
            while True:
                began = time.perf_counter()
                await list_waiting(ana, 50)
                lists.append((time.perf_counter() - began) * 1000)
                await asyncio.sleep(1)

    looking = asyncio.create_task(look())
    began = time.perf_counter()
    async with stack.http(gateway, "rui") as rui:
        taken = await start_turns(rui, number, STARTS_AT_ONCE)
    accepted = time.perf_counter() - began
    await wait_for(stack, number)
    until = time.perf_counter() - began
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    return {
        "accepted after, s": spread([accepted]),
        "waiting after, s": spread([until]),
        "started until they wait, a second": spread([number / until]),
        "one start, ms": spread(taken),
        "one start, p99, ms": spread([percentile(taken, 99)]),
        "a list of 50 meanwhile, ms": spread(lists),
        "memory of the worker, MB": spread([resident_mb(worker.pid)]),
        "memory of the gateway, MB": spread([resident_mb(gateway.process.pid)]),
        "memory of the server, MB": spread([resident_mb(stack.server.pid)]),
    }


async def _every_request(stack: Stack, ana: Any, number: int) -> list[dict[str, Any]]:
    # The API lists at most a thousand requests at once.
    found = await list_waiting(ana, min(number, 1_000))
    if len(found) != number:
        raise StackFailed(f"{len(found)} of {number} requests are listed")
    return found
