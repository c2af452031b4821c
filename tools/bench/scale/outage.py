"""Measures pages and answers of a gateway that has lost Temporal's server."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from tools.bench.scale.report import Spread, spreads
from tools.bench.scale.stack import Stack, answer_of
from tools.bench.scale.waiting import decide, list_waiting, open_page, sign_in, start_turns, wait_for

ANSWERS: Final = 20


async def measure_outage(stack: Stack, answers: int = ANSWERS) -> dict[str, Spread]:
    """Each page and each answer is the first one of its request."""
    await stack.start_worker()
    gateway = await stack.start_gateway()
    async with stack.http(gateway, "rui") as rui:
        await start_turns(rui, answers)
    await wait_for(stack, answers)
    figures: dict[str, list[float]] = defaultdict(list)

    async def timed(name: str, work: Callable[[], Awaitable[Any]]) -> None:
        began = time.perf_counter()
        await work()
        figures[name].append((time.perf_counter() - began) * 1000)

    async with stack.http(gateway, "ana") as ana, contextlib.aclosing(await sign_in(stack, gateway)) as browser:
        waiting = await list_waiting(ana, answers)
        await stack.server.stop()
        for request in waiting:
            name = request["id"]
            await timed("the list, ms", partial(list_waiting, ana, answers))
            await timed("a request by the API, ms", partial(answer_of, ana, f"/v1/approvals/{name}"))
            await timed("a request's page, ms", partial(open_page, browser, f"/approvals/{name}"))
            await timed("an answer, ms", partial(decide, ana, name))
    return spreads(figures)
