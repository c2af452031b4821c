"""The sides behind one interface: start a turn, see it wait, decide it, get its result."""

import uuid
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.worker import Worker, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from signoff.contracts import names
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.decision import Decision
from signoff.contracts.ids import ApprovalKey, TurnKey, parse_workflow_id
from signoff.contracts.message import user_message
from signoff.contracts.person import Principal
from signoff.contracts.turn import TurnInput
from signoff.engine.turn_client import TurnClient
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.store.store import Store
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results
from signoff.worker import build_deps, build_worker, worker_options
from tools.bench.baseline import Ask, HandWritten, conclude, propose, transfer

BASELINE = "hand-written"
SIGNOFF = "signoff"
AUTOMATIC = "automatic"
HUMAN = "human"
_GUEST = Principal(user="guest", name="Guest")
_TIMER_STARTED = EventType.EVENT_TYPE_TIMER_STARTED
_TASK_COMPLETED = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED


class TurnFailed(Exception):
    """A turn did not do the measured work, so there is nothing to compare."""


class Turns(Protocol):
    """The turns of one side."""

    name: str

    async def start(self, kind: str) -> str:
        """Start a turn that is `automatic` or `human`. Return its id, on Temporal the workflow's."""
        ...

    async def suspended(self, turn: str) -> None:
        """Use the server's long poll, which costs both sides the same."""
        ...

    async def decide(self, turn: str) -> None: ...

    async def finished(self, turn: str) -> None:
        """Raise `TurnFailed` if the work was not done."""
        ...


class Side(Turns, Protocol):
    """One side on Temporal."""

    def worker(self) -> Worker:
        """Return a worker that is not yet running, with the same options on all sides."""
        ...


def handmade_worker(
    client: Client,
    task_queue: str,
    workflows: Sequence[type],
    activities: Sequence[Callable[..., Any]],
    runner: WorkflowRunner | None = None,
) -> Worker:
    """The worker has Signoff's options and is not yet running. The default runner is the SDK's sandbox."""
    build = f"{names.VERSION}-handmade"
    return Worker(
        client,
        task_queue=task_queue,
        workflows=workflows,
        activities=activities,
        workflow_runner=runner or SandboxedWorkflowRunner(),
        build_id=build,
        **worker_options(),
    )


class Baseline:
    """The hand-written workflow."""

    name = BASELINE

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue

    def worker(self) -> Worker:
        return handmade_worker(self._client, self._task_queue, [HandWritten], [propose, transfer, conclude])

    async def start(self, kind: str) -> str:
        turn = f"{BASELINE}/{uuid.uuid4().hex[:16]}"
        await self._client.start_workflow(
            HandWritten.run, Ask(kind, kind == HUMAN), id=turn, task_queue=self._task_queue
        )
        return turn

    async def suspended(self, turn: str) -> None:
        await await_second_task(self._client, turn)

    async def decide(self, turn: str) -> None:
        await self._client.get_workflow_handle(turn).signal(HandWritten.decide, "approved")

    async def finished(self, turn: str) -> None:
        answer = await self._client.get_workflow_handle_for(HandWritten.run, turn).result()
        if answer != "done":
            raise TurnFailed(f"the hand-written turn answered `{answer}`")


class Gated:
    """Signoff, with every gate on."""

    name = SIGNOFF

    def __init__(self, client: Client, task_queue: str, worker: Worker) -> None:
        self._client = client
        self._signoff = TurnClient(client, task_queue=task_queue)
        self._worker = worker
        self.as_signals = 0
        """The number of decisions that no worker took within 3 s, so that the client sent them as Signals."""

    @classmethod
    async def open(cls, client: Client, task_queue: str, store: Store) -> "Gated":
        """Wire Signoff as in `signoff worker`."""
        room = await build_deps(catalog(), store)
        return cls(client, task_queue, build_worker(client, room, task_queue=task_queue))

    def worker(self) -> Worker:
        return self._worker

    async def start(self, kind: str) -> str:
        turn = uuid.uuid4().hex[:16]
        key = await self._signoff.start_turn(
            TurnInput(
                engine=names.ENGINE,
                session_id=turn,
                turn_id=turn,
                actor="desk",
                messages=(user_message(kind),),
                principal=_GUEST,
            )
        )
        return key.workflow_id

    async def suspended(self, turn: str) -> None:
        """Wait until the deadline's timer is set."""
        await _seen(self._client, turn, _TIMER_STARTED, 1)

    async def decide(self, turn: str) -> None:
        """Send the decision as Temporal's own interfaces do: by an Update, without a gateway."""
        approval, delivery = ApprovalKey(_key(turn), "c1.1"), uuid.uuid4().hex
        decision = Decision(
            approval_id=approval.id,
            revision=1,
            verdict="approved",
            subject="approver",
            channel="bench",
            assurance="session",
            delivery_id=delivery,
        )
        body = decision.model_dump(mode="json", exclude_defaults=True)
        receipt = await self._signoff.deliver(approval, delivery, body)
        if receipt.status not in ("accepted", "pending"):
            raise TurnFailed(f"the decision was {receipt.status} ({receipt.code}): {receipt.message}")
        self.as_signals += receipt.status == "pending"

    async def finished(self, turn: str) -> None:
        result = await self._signoff.result(_key(turn))
        if result.state != "complete" or [outcome.code for outcome in result.calls] != ["ok"]:
            raise TurnFailed(f"the turn ended `{result.state}` with {[outcome.code for outcome in result.calls]}")


def catalog() -> Catalog:
    async def pay(args: dict[str, object], ctx: ToolContext) -> str:
        return "paid"

    tool = Tool(
        name="pay",
        description="Pay somebody",
        input_schema={
            "type": "object",
            "properties": {"amount": {"type": "number"}, "to": {"type": "string"}},
            "required": ["amount", "to"],
            "additionalProperties": False,
        },
        handler=pay,
        scope="generalist",
        requires_approval=ApprovalPolicy(auto_approve_if="args.amount < 50.0 && ctx.user.tier == 'standard'"),
        effect="Pay {amount} to {to}",
    )
    return build_catalog(
        tools=[tool],
        actors=[Actor(name="desk", description="", instructions="", model="scripted:tools.bench.sides:MODEL")],
        policies=[GlobalRule(name="no-experiments", rule="'experimental' in tool.tags", effect="hide")],
    )


def _complete(request: CompletionRequest) -> Completion:
    if results(request):
        return respond("done")
    return calls(("pay", {"amount": 420 if last_user_text(request) == HUMAN else 20, "to": "Ana"}))


MODEL = ScriptedModel(_complete)


def _key(turn: str) -> TurnKey:
    key = parse_workflow_id(turn)
    if key is None:
        raise TurnFailed(f"`{turn}` is no turn")
    return key


async def await_second_task(client: Client, turn: str) -> None:
    """Wait until the task after the model's answer is completed."""
    await _seen(client, turn, _TASK_COMPLETED, 2)


async def _seen(client: Client, turn: str, kind: EventType.ValueType, count: int) -> None:
    events = client.get_workflow_handle(turn).fetch_history_events(wait_new_event=True)
    async for event in events:
        count -= event.event_type == kind
        if count == 0:
            return
    raise TurnFailed(f"`{turn}` ended without waiting for approval")
