"""A tenant whose turns queue up by the hundred keeps another's few from no worker."""

from temporalio.client import Client
from turn_fixtures import Ledger, RunningTurns, catalog_of, pay_tool, running_turns

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.engine.turn_client import TurnClient
from signoff.store.store import Store
from signoff.testing.scripted_model import ScriptedModel, last_user_text, respond

QUEUED = 300


async def test_turns_of_tenants_are_taken_in_turn(client: Client, store: Store, task_queue: str) -> None:
    """No worker was there while one tenant began hundreds, and another three after them."""
    order: list[str] = []

    def react(request: CompletionRequest) -> Completion:
        order.append(last_user_text(request))
        return respond("done")

    async with running_turns(client, store, "elsewhere", catalog_of([pay_tool(Ledger())]), []) as other:
        queue = RunningTurns(TurnClient(client, task_queue=task_queue), client, store, task_queue, other.deps)
        for _ in range(QUEUED):
            await queue.start("acme", tenant_id="acme")
        keys = [await queue.start("main", tenant_id="main") for _ in range(3)]
    async with running_turns(client, store, task_queue, other.deps.catalog, ScriptedModel(react)) as turns:
        for key in keys:
            await turns.signoff.result(key)
        assert order.count("main") == 3
        assert order.count("acme") < QUEUED / 2
