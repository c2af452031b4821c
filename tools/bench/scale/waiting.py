"""Measures an installation at several numbers of waiting turns: memory, sizes, lists, decisions, restarts."""

import asyncio
import contextlib
import re
import time
from asyncio.subprocess import Process
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx2
from sqlalchemy import text

from signoff.contracts.ids import TurnKey
from signoff.store.store import open_store
from tools.bench.scale.report import Point, spreads
from tools.bench.scale.stack import Gateway, Stack, StackFailed, answer_of, kill, resident_mb, size_mb

AT_ONCE = 40
REPETITIONS = 7
RESTARTS = 3
PAGE = 50
WHOLE = 1_000
"""The API's largest list."""
_SETTLE_SECONDS = 2.0
_LOOK_SECONDS = 0.5
_CARD_SECONDS = 0.01
_FIELD = re.compile(r'type="hidden" name="(\w+)" value="([^"]*)"')


async def measure_waiting(stack: Stack, numbers: Sequence[int], repetitions: int = REPETITIONS) -> list[Point]:
    """The `numbers` ascend."""
    worker, gateway = await stack.start_worker(), await stack.start_gateway()
    points = []
    for number in numbers:
        async with stack.http(gateway, "rui") as rui:
            began = time.perf_counter()
            have = await stack.waiting()
            await start_turns(rui, number - have)
            await wait_for(stack, number)
            each = (time.perf_counter() - began) / (number - have)
        await asyncio.sleep(_SETTLE_SECONDS)
        figures: dict[str, list[float]] = defaultdict(list)
        figures["a start until it waits, of many, ms"].append(each * 1000)
        figures["memory of the worker, MB"].append(resident_mb(worker.pid))
        figures["memory of the gateway, MB"].append(resident_mb(gateway.process.pid))
        figures["memory of the server, MB"].append(resident_mb(stack.server.pid))
        figures["store, MB"].append(await store_mb(stack))
        figures["Temporal's database, MB"].append(size_mb(stack.folder / "temporal.db"))
        await _read(stack, gateway, figures, repetitions)
        async with stack.http(gateway, "rui") as rui, stack.http(gateway, "ana") as ana:
            figures["a start until the approver's card, ms"] = [await _card_ms(rui, ana) for _ in range(repetitions)]
        async with stack.http(gateway, "ana") as ana:
            for _ in range(repetitions):
                receipt, done = await decide_next(stack, ana)
                figures["decide, until the receipt, ms"].append(receipt)
                figures["decide, until done, ms"].append(done)
            for _ in range(min(RESTARTS, repetitions)):
                worker, until = await _restart(stack, worker, ana)
                figures["restart of the worker, until a decision is done, s"].append(until)
        points.append(Point(turns=number, figures=spreads(figures)))
        print(f"{number} waiting: {points[-1].model_dump_json()}", flush=True)
    return points


async def start_turns(rui: httpx2.AsyncClient, number: int, at_once: int = AT_ONCE) -> list[float]:
    """Return the milliseconds of each request."""
    left, taken = iter(range(number)), list[float]()

    async def work() -> None:
        for each in left:
            began = time.perf_counter()
            answer = await rui.post("/v1/turns", json={"text": str(100 + each % 9_000)})
            if answer.status_code != httpx2.codes.CREATED:
                raise StackFailed(f"a turn was not started: {answer.status_code} {answer.text[:300]}")
            taken.append((time.perf_counter() - began) * 1000)

    await asyncio.gather(*(work() for _ in range(min(at_once, number))))
    return taken


async def _card_ms(rui: httpx2.AsyncClient, ana: httpx2.AsyncClient) -> float:
    """Return the milliseconds from the request for a turn until the gateway shows the card of its call."""
    began = time.perf_counter()
    started = await rui.post("/v1/turns", json={"text": "4200"})
    if started.status_code != httpx2.codes.CREATED:
        raise StackFailed(f"a turn was not started: {started.status_code} {started.text[:300]}")
    card = f"/v1/approvals/{started.json()['id']}.c1.1"
    while (await ana.get(card)).status_code == httpx2.codes.NOT_FOUND:  # noqa: ASYNC110 - as an approver reloads
        await asyncio.sleep(_CARD_SECONDS)
    await answer_of(ana, card)
    return (time.perf_counter() - began) * 1000


async def wait_for(stack: Stack, number: int) -> None:
    while await stack.waiting() < number:  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(_LOOK_SECONDS)


async def list_waiting(ana: httpx2.AsyncClient, limit: int) -> list[dict[str, Any]]:
    """Return the soonest deadline first."""
    found = await answer_of(ana, "/v1/approvals", limit=limit)
    return list(found["approvals"])


async def decide(ana: httpx2.AsyncClient, approval: str) -> None:
    """Raise `StackFailed` unless the approval was accepted."""
    shown = await answer_of(ana, f"/v1/approvals/{approval}")
    body = {"verdict": "approved", **{name: shown[name] for name in ("revision", "question_hash", "seen")}}
    answer = await ana.post(f"/v1/approvals/{approval}/decide", json=body)
    if not answer.is_success or answer.json()["status"] not in ("accepted", "pending"):
        raise StackFailed(f"the decision was not taken: {answer.status_code} {answer.text[:300]}")


async def decide_next(stack: Stack, ana: httpx2.AsyncClient) -> tuple[float, float]:
    """Return the milliseconds until the receipt, and until the turn's end."""
    first = (await list_waiting(ana, 1))[0]
    began = time.perf_counter()
    await decide(ana, first["id"])
    receipt = time.perf_counter()
    await is_complete(stack, first)
    return (receipt - began) * 1000, (time.perf_counter() - began) * 1000


async def is_complete(stack: Stack, request: dict[str, Any]) -> None:
    """Use the server's long poll."""
    name = TurnKey(request["tenant"], request["session"], request["turn"]).workflow_id
    events = stack.client.get_workflow_handle(name).fetch_history_events(wait_new_event=True, skip_archival=True)
    async for event in events:
        last = event
    if not last.HasField("workflow_execution_completed_event_attributes"):
        raise StackFailed(f"turn {name} did not complete")


async def store_mb(stack: Stack) -> float:
    """Return the size of SQLite's files, or of PostgreSQL's database."""
    if stack.store_url.startswith("sqlite"):
        return size_mb(stack.folder / "signoff.db")
    query = text("SELECT pg_database_size(current_database())")
    async with open_store(stack.store_url) as store:
        return float(await store.run(lambda connection: connection.scalar(query)) or 0) / 1e6


async def _read(stack: Stack, gateway: Gateway, figures: dict[str, list[float]], repetitions: int) -> None:
    async with stack.http(gateway, "ana") as ana, contextlib.aclosing(await sign_in(stack, gateway)) as page:
        reads: dict[str, Callable[[], Awaitable[Any]]] = {
            f"first page of {PAGE}, ms": lambda: answer_of(ana, "/v1/approvals", limit=PAGE),
            f"list of {WHOLE:,}, ms": lambda: answer_of(ana, "/v1/approvals", limit=WHOLE),
            "the inbox's page, ms": lambda: open_page(page, "/"),
            f"turns, first {PAGE}, ms": lambda: answer_of(ana, "/v1/turns", limit=PAGE),
        }
        for _ in range(repetitions):
            for name, read in reads.items():
                began = time.perf_counter()
                await read()
                figures[name].append((time.perf_counter() - began) * 1000)
    for _ in range(min(RESTARTS, repetitions)):
        taken = await stack.run("inbox", SIGNOFF_PUBLIC_URL=gateway.address, SIGNOFF_TOKEN=stack.tokens["ana"])
        figures["`signoff inbox`, s"].append(taken.wall)
        figures["`signoff inbox`, processor, s"].append(taken.processor)


async def _restart(stack: Stack, worker: Process, ana: httpx2.AsyncClient) -> tuple[Process, float]:
    """Return the new worker, and the seconds until it has finished its pending decision."""
    await kill(worker)
    began = time.perf_counter()
    worker = await stack.start_worker()
    await decide_next(stack, ana)
    return worker, time.perf_counter() - began


async def sign_in(stack: Stack, gateway: Gateway) -> httpx2.AsyncClient:
    browser = httpx2.AsyncClient(base_url=gateway.address, timeout=60, headers={"sec-fetch-site": "same-origin"})
    shown = (await browser.get("/login")).text
    form = shown[shown.index('action="/login"') :]
    fields = dict(_FIELD.findall(form[: form.index("</form>")])) | {"secret": stack.tokens["ana"]}
    answer = await browser.post("/login", data=fields)
    if answer.status_code != httpx2.codes.SEE_OTHER:
        raise StackFailed(f"signing in answered {answer.status_code}")
    return browser


async def open_page(browser: httpx2.AsyncClient, path: str) -> None:
    answer = await browser.get(path)
    if answer.status_code != httpx2.codes.OK:
        raise StackFailed(f"{path} answered {answer.status_code}")
