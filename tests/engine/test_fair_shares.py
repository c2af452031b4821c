from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client
from turn_fixtures import PATIENCE, Ledger, RunningTurns, catalog_of, pay_tool, running_turns

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.engine.turn_client import TurnClient
from signoff.store.store import Store
from signoff.temporal.embedded_server import ServerOptions, free_port, run_server
from signoff.testing.scripted_model import ScriptedModel, last_user_text, respond

QUEUED = 300


@pytest.fixture
async def fair_client(tmp_path: Path) -> AsyncIterator[Client]:
    options = ServerOptions(tmp_path / "temporal.db", port=free_port(), ui_port=None, fair=True)
    async with run_server(options) as server:
        yield await server.connect()


async def test_turns_of_tenants_are_taken_alternately(fair_client: Client, store: Store, task_queue: str) -> None:
    order: list[str] = []

    def react(request: CompletionRequest) -> Completion:
        order.append(last_user_text(request))
        return respond("done")

    async with running_turns(fair_client, store, "elsewhere", catalog_of([pay_tool(Ledger())]), []) as other:
        queue = RunningTurns(
            TurnClient(fair_client, task_queue=task_queue, patience=PATIENCE),
            fair_client,
            store,
            task_queue,
            other.deps,
        )
        for _ in range(QUEUED):
            await queue.start("acme", tenant_id="acme")
        keys = [await queue.start("main", tenant_id="main") for _ in range(3)]
    async with running_turns(fair_client, store, task_queue, other.deps.catalog, ScriptedModel(react)) as turns:
        for key in keys:
            await turns.signoff.result(key)
        assert order.count("main") == 3
        # Until the last turn began: its result may take longer.
        last = max(place for place, each in enumerate(order) if each == "main")
        assert order[:last].count("acme") < QUEUED / 2
