"""Pydantic AI on Temporal, behind the interface of the sides."""

import uuid

from pydantic_ai.durable_exec.temporal import PydanticAIPlugin
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from tools.bench.peers.pydantic_turn import PydanticTurn
from tools.bench.peers.report import PYDANTIC, PYDANTIC_BARE
from tools.bench.sides import TurnFailed, await_second_task, handmade_worker


class PydanticAI:
    """The client has Pydantic AI's plugin, which registers the agent's activities."""

    def __init__(self, client: Client, task_queue: str, name: str, runner: WorkflowRunner) -> None:
        self.name = name
        self._client = client
        self._task_queue = task_queue
        self._runner = runner

    def worker(self) -> Worker:
        return handmade_worker(self._client, self._task_queue, [PydanticTurn], [], self._runner)

    async def start(self, kind: str) -> str:
        turn = uuid.uuid4().hex
        await self._client.start_workflow(PydanticTurn.run, kind, id=turn, task_queue=self._task_queue)
        return turn

    async def suspended(self, turn: str) -> None:
        await await_second_task(self._client, turn)

    async def decide(self, turn: str) -> None:
        await self._client.get_workflow_handle(turn).signal(PydanticTurn.decide, "approved")

    async def finished(self, turn: str) -> None:
        answer = await self._client.get_workflow_handle_for(PydanticTurn.run, turn).result()
        if answer != "done":
            raise TurnFailed(f"the turn of Pydantic AI answered `{answer}`")


async def pydantic_sides(address: str) -> tuple[PydanticAI, PydanticAI]:
    """Return the documented side, and the one without a sandbox."""
    client = await Client.connect(address, plugins=[PydanticAIPlugin()])
    return (
        PydanticAI(client, "bench-pydantic-ai", PYDANTIC, SandboxedWorkflowRunner()),
        PydanticAI(client, "bench-pydantic-ai-bare", PYDANTIC_BARE, UnsandboxedWorkflowRunner()),
    )
