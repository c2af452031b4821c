import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from polling import pauses
from raw_turns import RawTurnClient
from some import some
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import TimeSkipper
from temporalio.worker import Replayer, WorkerDeploymentConfig
from turn_reset import reset_turn

from signoff.activities.mcp.tool_servers import tool_servers, use_servers
from signoff.activities.worker_deps import Profile, WorkerDeps
from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest, Question
from signoff.contracts.completion import Completion, Driver
from signoff.contracts.decision import Decision
from signoff.contracts.errors import NotFound, ServerUnavailable
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.message import ResultPart, user_message
from signoff.contracts.person import Principal
from signoff.contracts.turn import TurnInput, TurnResult, TurnView
from signoff.engine.session_client import SessionClient
from signoff.formats.tenant_limits import NO_LIMITS, TenantLimits
from signoff.keys.secrets import SecretProvider
from signoff.keys.signatures import Verifier
from signoff.people.directory import Directory
from signoff.policy.approval_policy import ApprovalPolicy, RequiresApproval
from signoff.registry.actor import Actor
from signoff.registry.capabilities import Backend
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.store.questions.questions import Questions
from signoff.store.store import Store
from signoff.store.tickets import ticket_key
from signoff.telemetry.span_sender import SpanSender
from signoff.testing.scripted_model import steps
from signoff.worker import build_worker
from signoff.workflows import temporal_metadata
from signoff.workflows.actor_turn import ActorTurn

AMOUNT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"amount": {"type": "number"}, "to": {"type": "string"}},
    "required": ["amount"],
    "additionalProperties": False,
}
_GLANCE_SECONDS = 0.03
PATIENCE = timedelta(seconds=40)
"""A running worker answers eventually on any machine. Tests without one use another client."""
GUEST = Principal(user="guest", name="Guest")


@dataclass
class Ledger:
    rows: list[tuple[str, dict[str, Any], str]] = field(default_factory=list)

    def handler(self, name: str, answer: Any = "paid") -> Callable[[dict[str, Any], ToolContext], Any]:
        async def run(args: dict[str, Any], ctx: ToolContext) -> Any:
            self.rows.append((name, args, ctx.idempotency_key))
            return answer(args, ctx) if callable(answer) else answer

        return run


def pay_tool(ledger: Ledger, requires_approval: RequiresApproval = True, **fields: Any) -> Tool:
    given: dict[str, Any] = {
        "name": "pay",
        "description": "Pay somebody",
        "input_schema": AMOUNT_SCHEMA,
        "scope": "generalist",
        "requires_approval": requires_approval,
        "effect": "Pay {amount} to {to}",
    } | fields
    given.setdefault("handler", ledger.handler(given["name"]))
    return Tool(**given)


def catalog_of(tools: Sequence[Tool], **more: Any) -> Catalog:
    actors = more.pop("actors", [Actor(name="desk", description="", instructions="", model="scripted")])
    return build_catalog(tools=tools, actors=actors, **more)


@dataclass
class RunningTurns:
    signoff: RawTurnClient
    client: Client
    store: Store
    task_queue: str
    deps: WorkerDeps

    @property
    def sessions(self) -> SessionClient:
        return SessionClient(self.signoff)

    async def start(self, text: str = "go", **fields: Any) -> TurnKey:
        turn = f"t{uuid.uuid4().hex[:12]}"
        given: dict[str, Any] = {
            "engine": names.ENGINE,
            "session_id": turn,
            "turn_id": turn,
            "actor": "desk",
            "messages": (user_message(text),),
            "principal": GUEST,
        } | fields
        return await self.signoff.start_turn(TurnInput(**given))

    async def start_waiting(self, text: str = "go", **fields: Any) -> TurnKey:
        key = await self.start(text, **fields)
        await self.waiting(key)
        return key

    async def lose(self, key: TurnKey) -> ApprovalRequest:
        request = some((await self.waiting(key)).calls[0].approval)
        await self.store.claim(ticket_key(request.digest, 1), workflow=key.workflow_id, call="c1.1", tool="pay")
        await self.signoff.decide(yes(key))
        return request

    async def result_after(self, decision: Decision) -> TurnResult:
        await self.signoff.decide(decision)
        return await self.signoff.result(TurnKey(*decision.approval_id.split(".")[:3]))

    async def until(self, key: TurnKey, seen: Callable[[TurnView], bool]) -> TurnView:
        waits = pauses()
        while True:
            # A busy machine may not answer one query in time, and a session starts its turns a moment later.
            with contextlib.suppress(ServerUnavailable, NotFound):
                view = await self.signoff.view(key)
                if seen(view):
                    return view
                assert view.result is None, f"the turn ended before it was seen so: {view.result}"
            await asyncio.sleep(next(waits))

    async def waiting(self, key: TurnKey, count: int = 1) -> TurnView:
        return await self.until(key, lambda v: sum(_waits(c) for c in v.calls) >= count)

    async def suspended(self, key: TurnKey) -> None:
        """Wait until the server lists the turn as suspended. Uses no worker, so none loads the turn."""
        handle = self.client.get_workflow_handle(key.workflow_id)
        while (await handle.describe()).typed_search_attributes.get(temporal_metadata.STATE) != "suspended":
            await asyncio.sleep(_GLANCE_SECONDS)

    async def reset(
        self, key: TurnKey, before: EventType.ValueType = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ) -> None:
        """Reset to the last workflow task completed before the first event of a type, or to the first task. Later
        answers are sent again.
        """
        await reset_turn(self.client, key, (before,))

    async def question(self, key: TurnKey, call: str = "c1.1") -> Question:
        """Read from the store: the turn keeps little of a question."""
        rows = await Questions(self.store).read(ApprovalKey(key, call).id)
        assert rows is not None
        return rows.latest

    async def results(self, key: TurnKey) -> list[ResultPart]:
        messages = await self.signoff.transcript(key)
        return [part for message in messages for part in message.parts if isinstance(part, ResultPart)]

    async def replays(self, key: TurnKey) -> None:
        """Raises if another worker's replay differs."""
        history = await self.client.get_workflow_handle(key.workflow_id).fetch_history()
        replayer = Replayer(
            workflows=[ActorTurn],
            data_converter=self.client.data_converter,
            namespace=self.client.namespace,
        )
        await replayer.replay_workflow(history)

    async def happened(self, key: TurnKey, event: str, count: int = 1) -> None:
        """Wait until the history has this number of an event, named without `EVENT_TYPE_`. During a workflow task the
        server keeps new events out of the history.
        """
        while (await self.events(key)).count(event) < count:
            await asyncio.sleep(_GLANCE_SECONDS)

    async def forward(self, key: TurnKey, **span: float) -> None:
        """Move the turn's own clock. Its worker must run, to continue with the timers."""
        handle = self.client.get_workflow_handle(key.workflow_id)
        await TimeSkipper(self.client).fast_forward(handle, timedelta(**span))

    async def fire(self, key: TurnKey, **span: float) -> None:
        """Fire the turn's first timer, which is due within `span`, without a worker."""
        forward = asyncio.create_task(self.forward(key, **span))
        await self.happened(key, "TIMER_FIRED")
        forward.cancel()
        await asyncio.gather(forward, return_exceptions=True)

    async def events(self, key: TurnKey) -> list[str]:
        """Leaves out workflow tasks that timed out on a busy machine."""
        handle = self.client.get_workflow_handle(key.workflow_id)
        events = (await handle.fetch_history()).events
        again: set[int] = set()
        for event in events:
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
                lost = event.workflow_task_timed_out_event_attributes
                again |= {event.event_id, lost.scheduled_event_id, lost.started_event_id}
        kept = [event for event in events if event.event_id not in again]
        return [EventType.Name(event.event_type).removeprefix("EVENT_TYPE_") for event in kept]


async def query_workflow(handle: WorkflowHandle[Any, Any], query: str, *about: Any, **options: Any) -> Any:
    """Repeats a lost query: the SDK drops the queries of a run that it evicts, and the server gives them up after ten
    seconds.
    """
    while True:
        try:
            return await handle.query(query, args=about, **options)
        except RPCError as error:
            if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                raise


def _waits(call: Any) -> bool:
    return call.approval is not None and call.approval.state == "pending"


def yes(key: TurnKey, call: str = "c1.1", **fields: Any) -> Decision:
    given: dict[str, Any] = {
        "approval_id": ApprovalKey(key, call).id,
        "revision": 1,
        "verdict": "approved",
        "subject": "approver",
        "channel": "test",
        "assurance": "session",
        "delivery_id": uuid.uuid4().hex,
    } | fields
    return Decision(**given)


def no(key: TurnKey, call: str = "c1.1", **fields: Any) -> Decision:
    return yes(key, call, **({"verdict": "denied", "reason": "too expensive"} | fields))


def withdrawn(key: TurnKey, call: str = "c1.1", **fields: Any) -> Decision:
    return yes(key, call, **({"verdict": "withdrawn", "subject": "guest", "revision": None} | fields))


@contextlib.asynccontextmanager
async def running_turns(
    client: Client,
    store: Store,
    task_queue: str,
    catalog: Catalog,
    model: Driver | Sequence[Completion],
    *,
    people: Directory | None = None,
    profile: Profile = "development",
    verifier: Verifier | None = None,
    backends: Mapping[str, Backend] | None = None,
    secrets: SecretProvider | None = None,
    public_url: str = "",
    max_cached_workflows: int = 5_000,
    spans: SpanSender | None = None,
    deployment: WorkerDeploymentConfig | None = None,
    tenant_limits: TenantLimits = NO_LIMITS,
) -> AsyncIterator[RunningTurns]:
    driver = steps(model) if isinstance(model, Sequence) else model
    deps = WorkerDeps(
        catalog=catalog,
        store=store,
        people=people or catalog.people,
        drivers={actor.model: driver for actor in catalog.actors.values()},
        mark_key=await store.secret_key("card-mark"),
        profile=profile,
        verifier=verifier or Verifier(),
        backends=backends or {},
        secrets=secrets or SecretProvider(),
        servers=tool_servers(catalog.mcp_servers, secrets or SecretProvider()),
        public_url=public_url,
        spans=spans,
        tenant_limits=tenant_limits,
    )
    cached = max_cached_workflows
    worker = build_worker(client, deps, task_queue=task_queue, max_cached_workflows=cached, deployment=deployment)
    async with use_servers(deps.servers), worker:
        signoff = RawTurnClient(client, task_queue=task_queue, patience=PATIENCE)
        signoff.store = store
        yield RunningTurns(signoff, client, store, task_queue, deps)


@dataclass(frozen=True)
class TurnRig:
    client: Client
    store: Store
    task_queue: str

    def running(
        self, catalog: Catalog | Sequence[Tool], model: Driver | Sequence[Completion], **options: Any
    ) -> contextlib.AbstractAsyncContextManager[RunningTurns]:
        whole = catalog if isinstance(catalog, Catalog) else catalog_of(catalog)
        return running_turns(self.client, self.store, self.task_queue, whole, model, **options)


__all__ = [
    "ApprovalPolicy",
    "Ledger",
    "RunningTurns",
    "TurnRig",
    "catalog_of",
    "no",
    "pay_tool",
    "query_workflow",
    "running_turns",
    "withdrawn",
    "yes",
]


def slow_once(ledger: Ledger) -> Any:
    tries: list[int] = []

    async def run(args: dict[str, Any], ctx: ToolContext) -> str:
        tries.append(1)
        if len(tries) == 1:
            await asyncio.Event().wait()
        ledger.rows.append(("pay", args, ctx.idempotency_key))
        return "paid"

    return run


def doubted(view: TurnView) -> bool:
    request = view.calls[0].approval if view.calls else None
    return request is not None and request.kind == "in_doubt" and request.state == "pending"
