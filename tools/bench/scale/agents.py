"""Measures a gateway at which many agents wait for approvers: processor time, calls to Temporal, time until woken."""

import asyncio
import random
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

import httpx2
import psutil
import yaml
from prometheus_client.parser import text_string_to_metric_families

from signoff.contracts.limits import STREAMS_OF_ONE
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.requests import MAX_WAIT_SECONDS
from signoff.store.store import open_store
from signoff.store.tokens import Tokens
from signoff.temporal.embedded_server import free_port
from tools.bench.scale.report import Spread, spread
from tools.bench.scale.stack import Gateway, Stack, StackFailed, answer_of, resident_mb
from tools.bench.scale.waiting import decide
from tools.bench.turns import percentile

AGENTS: Final = 2_000
WATCHED_SECONDS: Final = 60.0
DECISIONS: Final = 50
PROPOSALS_AT_ONCE: Final = 20
_PROBE_SECONDS: Final = 0.5
_WOKEN_SECONDS: Final = 120.0
_AGAIN_SECONDS: Final = 1.0
"""The pause of an agent after a refused request."""


async def measure_agents(
    stack: Stack, number: int = AGENTS, seconds: float = WATCHED_SECONDS, decisions: int = DECISIONS
) -> dict[str, Spread]:
    """Agents wait at one gateway, and a person decides at another.

    Each agent waits again when its wait ends, spread evenly over time.
    """
    names = [f"agent{each}" for each in range(-(-number // STREAMS_OF_ONE))]
    _declare(stack, names)
    port = free_port()
    await stack.start_worker()
    gateway = await stack.start_gateway(SIGNOFF_METRICS_PORT=str(port))
    second = await stack.start_gateway()
    tokens = await _tokens(stack, names)
    async with _connect(gateway) as http, stack.http(second, "ana") as ana:
        calls = await _propose(http, tokens, number)
        process = psutil.Process(gateway.process.pid)
        figures: dict[str, list[float]] = {}
        before = await _observe(process, gateway, port, seconds)
        figures["without waits: processor of the gateway, % of a core"] = [before.processor]
        figures["without waits: calls to Temporal"] = [before.calls]
        waits = _Waits(gateway, tokens)
        # A failure ends the waits quietly.
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(waits.wait(agent, call)) for agent, call in calls]
            # Then all wait, and their ends are spread over the longest wait.
            await asyncio.sleep(MAX_WAIT_SECONDS + 5)
            during = await _observe(process, gateway, port, seconds)
            figures[f"{number:,} waits: processor of the gateway, % of a core"] = [during.processor]
            figures[f"{number:,} waits: calls to Temporal"] = [during.calls]
            figures[f"{number:,} waits: /healthz, ms"] = during.probes
            figures["memory of the gateway, MB"] = [resident_mb(gateway.process.pid)]
            figures["decision to woken, ms"] = await _decide(ana, [call for _, call in calls][:decisions], waits.woken)
            figures["waits that ended early"] = [waits.failed.total()]
            for task in tasks:
                task.cancel()
        for reason, times in waits.failed.most_common():
            print(f"  {times} waits ended early: {reason}", flush=True)
    found = {name: spread(values) for name, values in figures.items()}
    slow = figures["decision to woken, ms"]
    return found | {"decision to woken, ms, p95": spread([percentile(slow, 95)])}


class _Observed(NamedTuple):
    processor: float
    """The percentage of a core."""
    calls: float
    """Calls to Temporal."""
    probes: list[float]
    """Milliseconds of each `/healthz`."""


async def _observe(process: psutil.Process, gateway: Gateway, port: int, seconds: float) -> _Observed:
    probes: list[float] = []
    async with httpx2.AsyncClient(timeout=30) as http:
        spent, asked, began = _spent(process), await _temporal_calls(http, port), time.perf_counter()
        while time.perf_counter() - began < seconds:
            at = time.perf_counter()
            await answer_of(http, f"{gateway.address}/healthz")
            probes.append((time.perf_counter() - at) * 1000)
            await asyncio.sleep(_PROBE_SECONDS)
        took = time.perf_counter() - began
        made = await _temporal_calls(http, port)
        for name in sorted(made):
            print(f"  {name}: {made[name] - asked.get(name, 0):.0f} in {took:.0f} s", flush=True)
        used = (_spent(process) - spent) / took * 100
        print(f"  gateway: {used:.0f} % of a core; /healthz: {percentile(probes, 50):.0f} ms", flush=True)
        return _Observed(used, sum(made.values()) - sum(asked.values()), probes)


def _spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def _temporal_calls(http: httpx2.AsyncClient, port: int) -> dict[str, float]:
    """Return the SDK's own counts by operation."""
    text = (await http.get(f"http://127.0.0.1:{port}/metrics")).text
    counts: dict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(text):
        if family.name in ("temporal_request", "temporal_long_request"):
            for sample in family.samples:
                counts[sample.labels["operation"]] += sample.value
    return counts


def _declare(stack: Stack, names: Sequence[str]) -> None:
    file = stack.folder / "project" / "signoff.yaml"
    manifest = yaml.safe_load(file.read_text())
    for name in names:
        manifest["actors"][name] = {"external": {"acts_for": ["user:rui"]}}
    manifest["tools"]["refund"] = {
        "runs": "external",
        "scope": "generalist",
        "title": "Refund",
        "description": "Refund an order.",
        "effect": "Refund {euro} EUR",
        "input_schema": {
            "type": "object",
            "properties": {"euro": {"type": "integer"}},
            "required": ["euro"],
            "additionalProperties": False,
        },
        "requires_approval": {"timeout": "30d"},
    }
    file.write_text(yaml.safe_dump(manifest, sort_keys=False))


async def _tokens(stack: Stack, names: Sequence[str]) -> dict[str, str]:
    # The command would take a second for each.
    async with open_store(stack.store_url) as store:
        tokens, now = Tokens(store), datetime.now(UTC)
        return {
            name: (
                await tokens.create(DEFAULT_TENANT, f"actor:{name}", ("call",), lifetime=timedelta(days=1), now=now)
            )[0]
            for name in names
        }


async def _propose(http: httpx2.AsyncClient, tokens: dict[str, str], number: int) -> list[tuple[str, str]]:
    agents = list(tokens)
    left, calls = iter(range(number)), list[tuple[str, str]]()

    async def work() -> None:
        for each in left:
            agent = agents[each % len(agents)]
            body = {"tool": "refund", "args": {"euro": each}, "user": "rui"}
            headers = {"authorization": f"Bearer {tokens[agent]}", "idempotency-key": uuid.uuid4().hex}
            call = await _ask(partial(http.post, "/v1/calls", json=body, headers=headers))
            while "code" not in call:
                call = await _ask(partial(http.get, f"/v1/calls/{call['id']}?wait=1", headers=headers))
            calls.append((agent, call["id"]))

    await asyncio.gather(*(work() for _ in range(PROPOSALS_AT_ONCE)))
    return calls


def _connect(gateway: Gateway, **headers: str) -> httpx2.AsyncClient:
    # The gateway speaks plain HTTP: thousands of clients need no certificates in memory.
    return httpx2.AsyncClient(
        base_url=gateway.address, headers=headers, timeout=MAX_WAIT_SECONDS + 60, verify=False, trust_env=False
    )


async def _ask(request: Callable[[], Awaitable[httpx2.Response]]) -> Any:
    """Ask again while a part of the installation is too busy."""
    answer = await request()
    while answer.status_code == httpx2.codes.SERVICE_UNAVAILABLE:
        await asyncio.sleep(_AGAIN_SECONDS)
        answer = await request()
    if not answer.is_success:
        raise StackFailed(f"a call was answered {answer.status_code}: {answer.text[:300]}")
    return answer.json()


class _Waits:
    """Waits as agents do: they wait again after a wait that ended early."""

    def __init__(self, gateway: Gateway, tokens: dict[str, str]) -> None:
        self._gateway = gateway
        self._tokens = tokens
        self.woken: dict[str, float] = {}
        """The time at which each decided call was answered."""
        self.failed = Counter[str]()
        """Waits that ended early, by reason."""

    async def wait(self, agent: str, call: str) -> None:
        seconds = random.uniform(1, MAX_WAIT_SECONDS)
        # A client for each agent: a shared one looks at all its connections at each request.
        async with _connect(self._gateway, authorization=f"Bearer {self._tokens[agent]}") as http:
            while await self._is_waiting(http, call, seconds):
                seconds = MAX_WAIT_SECONDS
        self.woken[call] = time.perf_counter()

    async def _is_waiting(self, http: httpx2.AsyncClient, call: str, seconds: float) -> bool:
        try:
            answer = await http.get(f"/v1/calls/{call}", params={"wait": round(seconds, 1)})
        except httpx2.TransportError as error:
            await self._fail(repr(error))
            return True
        if answer.status_code != httpx2.codes.OK:
            await self._fail(f"{answer.status_code}: {answer.text[:300]}")
            return True
        return bool(answer.json()["state"] == "waiting")

    async def _fail(self, reason: str) -> None:
        self.failed[reason] += 1
        await asyncio.sleep(_AGAIN_SECONDS)


async def _decide(ana: httpx2.AsyncClient, calls: Sequence[str], woken: dict[str, float]) -> list[float]:
    """Return the milliseconds from the receipt of each decision until its agent has its answer."""
    taken: list[float] = []
    for call in calls:
        await decide(ana, f"{call}.c1.1")
        decided = time.perf_counter()
        async with asyncio.timeout(_WOKEN_SECONDS):
            while call not in woken:  # noqa: ASYNC110 - the waits run in this loop
                await asyncio.sleep(0.001)
        taken.append((woken[call] - decided) * 1000)
    return taken
