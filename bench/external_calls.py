"""What an external call takes beside a hand-written workflow that does the same work.

Run it: `python -m bench.external_calls [--rounds N] [--calls N] [--json FILE]`.
"""

import argparse
import asyncio
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx
import psutil
from temporalio.client import Client, WithStartWorkflowOperation
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import Worker

from bench.baseline import OneActivity, Payment, RunElsewhere, allow, transfer
from bench.report import Figures, Where, render_table, where
from bench.sides import BASELINE, SIGNOFF
from bench.turns import cpu_seconds, percentile
from signoff.contracts import names
from signoff.contracts.ids import TurnKey
from signoff.contracts.names import ENGINE
from signoff.contracts.person import Person
from signoff.engine.turn_client import TurnClient
from signoff.gateway.app import build_app
from signoff.gateway.deps import GatewayDeps
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor, ExternalAgent
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.handler_adapters import run_elsewhere
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.settings import Settings
from signoff.store.store import Store, open_store
from signoff.store.tokens import Tokens
from signoff.temporal.embedded_server import ServerOptions, free_port, run_server
from signoff.worker import build_deps, build_worker, freeze_gc, worker_options

MAX_RATIO: Final = 1.3
"""What an automatic external call may take at most of a hand-written workflow that does the same work, p50 at 1."""
MAX_EVENTS_AUTOMATIC: Final = 18
MAX_EVENTS_ASKED: Final = 28
ROUNDS: Final = 5
CALLS: Final = 100
_WARM_CALLS: Final = 20
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"amount": {"type": "number"}, "to": {"type": "string"}},
    "required": ["amount", "to"],
    "additionalProperties": False,
}
Act = Callable[[], Awaitable[object]]
RUN: Final = "run by Signoff"
PERMIT: Final = "permitted and used, one request"
WHOLE: Final = "permitted, used and reported, two requests"


class CallFailed(Exception):
    """A call did not do the work that is measured, so there is nothing to compare."""


class HandWritten:
    """What a caller and a workflow written by hand do; `client` is Temporal's own."""

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue

    def worker(self) -> Worker:
        """A worker that is not running yet, with the options of ours."""
        return Worker(
            self._client,
            task_queue=self._task_queue,
            workflows=[OneActivity, RunElsewhere],
            activities=[allow, transfer],
            build_id=f"{names.VERSION}-handmade",
            **worker_options(),
        )

    async def run(self) -> None:
        """Started and awaited: one request and the wait for its result."""
        paid = await self._client.execute_workflow(
            OneActivity.run, _PAYMENT, id=uuid.uuid4().hex, task_queue=self._task_queue
        )
        _check(paid == "paid", paid)

    async def permit(self) -> str:
        """Started and told yes, in one request; returns the workflow's id."""
        given = uuid.uuid4().hex
        start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            RunElsewhere.run,
            _PAYMENT,
            id=given,
            task_queue=self._task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        )
        allowed = await self._client.execute_update_with_start_workflow(
            RunElsewhere.permit, _PAYMENT, start_workflow_operation=start
        )
        _check(allowed, allowed)
        return given

    async def report(self, given: str) -> None:
        """Told what became of it."""
        told = await self._client.get_workflow_handle(given).execute_update(RunElsewhere.report, "paid")
        _check(told == "paid", told)


class ExternalAgentClient:
    """An external agent before a gateway of the production profile: its token is checked, and turns are signed."""

    def __init__(self, http: httpx.AsyncClient, deps: GatewayDeps) -> None:
        self._http = http
        self.deps = deps

    async def run(self) -> str:
        """A call that Signoff runs: one request; returns its id."""
        ended = await self._propose("pay", 20)
        _check((ended["state"], ended.get("code")) == ("ended", "ok"), ended)
        return str(ended["id"])

    async def permit(self) -> str:
        """A call that the agent runs, permitted and used in one request; returns its id."""
        used = await self._propose("refund", 20, use=True)
        _check(used["state"] == "used" and used["args"]["amount"] == 20, used)
        return str(used["id"])

    async def report(self, call: str) -> None:
        """Reports what became of it."""
        await self._end(call, "paid")

    async def ask(self) -> str:
        """A call that people approve and the agent then uses and reports; returns its id."""
        waiting = await self._propose("refund", 420)
        _check(waiting["state"] == "waiting", waiting)
        call = str(waiting["id"])
        approval = f"{call}.c1.1"
        shown = (await self._http.get(f"/v1/approvals/{approval}", headers=self._person)).json()
        answer = {key: shown[key] for key in ("revision", "question_hash")} | {"verdict": "approved"}
        decided = await self._http.post(f"/v1/approvals/{approval}/decide", json=answer, headers=self._person)
        _check(decided.is_success, decided.text)
        permitted = (await self._http.get(f"/v1/calls/{call}", params={"wait": 50})).json()
        _check(permitted["state"] == "permitted", permitted)
        used = await self._http.post(f"/v1/calls/{call}/use", json={})
        _check(used.is_success, used.text)
        await self._end(call, "paid")
        return call

    async def sign_in(self) -> None:
        """Has a token for the agent, and one for the person who decides."""
        tokens, now = Tokens(self.deps.store), self.deps.clock()
        day = timedelta(days=1)
        agent, _ = await tokens.create("main", "actor:coder", ("call",), lifetime=day, now=now)
        person, _ = await tokens.create("main", "ana", ("read", "decide"), lifetime=day, now=now)
        self._http.headers["authorization"] = f"Bearer {agent}"
        self._person = {"authorization": f"Bearer {person}"}

    async def _propose(self, tool: str, amount: float, **fields: Any) -> dict[str, Any]:
        body = {"tool": tool, "args": {"amount": amount, "to": "Ana"}, **fields}
        answer = await self._http.post("/v1/calls", json=body, headers={"idempotency-key": uuid.uuid4().hex})
        _check(answer.is_success, answer.text)
        found: dict[str, Any] = answer.json()
        return found

    async def _end(self, call: str, result: str) -> None:
        ended = await self._http.post(f"/v1/calls/{call}/outcome", json={"code": "ok", "result": result})
        _check(ended.is_success and ended.json()["state"] == "ended", ended.text)


class CallFigure(Figures):
    """One kind of call in one round, one at a time: both p50 in milliseconds."""

    kind: str
    number: int
    hand_p50_ms: float
    p50_ms: float

    @property
    def ratio(self) -> float:
        """What ours takes of the hand-written one."""
        return self.p50_ms / self.hand_p50_ms

    def line(self) -> str:
        """The figure as one line of a log."""
        took = f"{self.hand_p50_ms:5.1f} {self.p50_ms:5.1f} ms  {self.ratio:.2f}"
        return f"round {self.number}  {self.kind:<44} {took}"


class CallProcessor(Figures):
    """Processor milliseconds of one call: in our process (worker, gateway and client), and in the server."""

    kind: str
    side: str
    own_ms: float
    server_ms: float


class CallsReport(Figures):
    """One run."""

    date: str
    engine: int
    where: Where
    rounds: int
    calls: int
    figures: tuple[CallFigure, ...]
    processor: tuple[CallProcessor, ...]
    events_run: int
    events_used: int
    events_asked: int

    def ratio(self, kind: str) -> float:
        """Of a kind, the median over the rounds of what it takes of the hand-written one."""
        return median(each.ratio for each in self.figures if each.kind == kind)


def _check(right: object, found: object) -> None:
    if not right:
        raise CallFailed(f"a call did not do its work: {found}")


_PAYMENT: Final = Payment(20, "Ana")


def catalog() -> Catalog:
    """One external agent, a tool that Signoff runs for it and one that it runs itself, with their policies in CEL."""

    async def pay(args: dict[str, object], ctx: ToolContext) -> str:
        return "paid"

    given: dict[str, Any] = {
        "description": "Pay somebody",
        "input_schema": _SCHEMA,
        "scope": "generalist",
        "effect": "Pay {amount} to {to}",
        "requires_approval": ApprovalPolicy(auto_approve_if="args.amount < 50.0 && ctx.user.tier == 'standard'"),
    }
    return build_catalog(
        tools=[
            Tool(name="pay", handler=pay, **given),
            Tool(name="refund", runs="external", handler=run_elsewhere, **given),
        ],
        actors=[Actor(name="coder", model="", external=ExternalAgent(acts_for=("user:guest",)))],
        people=(Person(id="guest", name="Guest"), Person(id="ana", name="Ana", roles=("approvers",))),
    )


@asynccontextmanager
async def open_agent(
    client: Client, store: Store, signer: Signer, task_queue: str
) -> AsyncIterator[ExternalAgentClient]:
    """Yields an agent before a gateway in this process, whose worker runs."""
    known = catalog()
    room = await build_deps(known, store, people=known.people, profile="production", verifier=signer.verifier())
    deps = GatewayDeps(
        client=TurnClient(client, task_queue=task_queue),
        catalog=known,
        people=known.people,
        store=store,
        settings=Settings(profile="production"),
        signer=signer,
    )
    transport = httpx.ASGITransport(app=build_app(deps))
    async with (
        build_worker(client, room, task_queue=task_queue),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8300", timeout=60) as http,
    ):
        agent = ExternalAgentClient(http, deps)
        await agent.sign_in()
        yield agent


async def measure(rounds: int, calls: int) -> CallsReport:
    """Measures both sides on one new server, started as `signoff dev` starts it."""
    with tempfile.TemporaryDirectory(prefix="signoff-bench-") as folder:
        options = ServerOptions(Path(folder) / "temporal.db", port=free_port(), ui_port=free_port())
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
    await _play(kinds, 0, min(_WARM_CALLS, calls))
    freeze_gc()
    figures: list[CallFigure] = []
    for number in range(1, rounds + 1):
        played = await _play(kinds, number, calls)
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


async def _play(kinds: Mapping[str, tuple[Act, Act]], number: int, calls: int) -> list[CallFigure]:
    """One round: one call at a time, of another kind and side each time, and who begins changes from call to call."""
    taken: dict[str, tuple[list[float], list[float]]] = {kind: ([], []) for kind in kinds}
    for index in range(calls):
        for kind, acts in kinds.items():
            for side in (0, 1) if index % 2 else (1, 0):
                began = time.perf_counter()
                await acts[side]()
                taken[kind][side].append((time.perf_counter() - began) * 1000)
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


async def _whole(side: HandWritten | ExternalAgentClient) -> None:
    await side.report(await side.permit())


async def _events(client: Client, call: str) -> int:
    """How many events a call's history has, without workflow tasks that timed out."""
    key = TurnKey(*call.split("."))
    history = await client.get_workflow_handle(key.workflow_id).fetch_history()
    return len(history.events)


def render(report: CallsReport) -> str:
    """The report as Markdown tables."""
    asked = report.where
    conditions = (
        f"{report.date}, engine {report.engine}: {report.rounds} rounds of {report.calls} calls of each kind; "
        f"{asked.cpus} CPUs, Python {asked.python}, Temporal server {asked.server}, SDK {asked.sdk}"
    )
    return "\n\n".join((conditions, _latencies(report), _processor(report), _verdict(report)))


def _latencies(report: CallsReport) -> str:
    rows = []
    for kind in dict.fromkeys(each.kind for each in report.figures):
        own = [each for each in report.figures if each.kind == kind]
        ratios = sorted(each.ratio for each in own)
        hand, ours = median(each.hand_p50_ms for each in own), median(each.p50_ms for each in own)
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        rows.append((kind, f"{hand:.1f}", f"{ours:.1f}", f"{median(ratios):.2f}", spread))
    return render_table(("p50 at 1, ms", BASELINE, SIGNOFF, "ratio", "ratios of the rounds"), rows)


def _processor(report: CallsReport) -> str:
    rows = [(each.kind, each.side, f"{each.own_ms:.1f}", f"{each.server_ms:.1f}") for each in report.processor]
    return render_table(("processor a call, ms", "side", "ours", "the server's"), rows)


def _verdict(report: CallsReport) -> str:
    checks = [(f"{kind}, ratio", report.ratio(kind), MAX_RATIO) for kind in (RUN, PERMIT, WHOLE)]
    checks += [
        ("events, run by Signoff", report.events_run, MAX_EVENTS_AUTOMATIC),
        ("events, run by the agent", report.events_used, MAX_EVENTS_AUTOMATIC),
        ("events, asked, run by the agent", report.events_asked, MAX_EVENTS_ASKED),
    ]
    rows = [
        (name, f"{found:.2f}", f"at most {most:g}", "ok" if found <= most else "missed") for name, found, most in checks
    ]
    return render_table(("target", "measured", "wanted", ""), rows)


def main() -> None:
    """Measures, prints every round and the tables, writes the JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.external_calls", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"interleaved rounds (default {ROUNDS})")
    parser.add_argument("--calls", type=int, default=CALLS, help=f"calls of each kind a round ({CALLS})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there as JSON")
    given = parser.parse_args()
    report = asyncio.run(measure(given.rounds, given.calls))
    print(f"\n{render(report)}")
    if given.json is not None:
        given.json.write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
