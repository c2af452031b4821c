import asyncio

import pytest
from broken_turn import Hesitant
from failures import Failure
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from turn_fixtures import PATIENCE, Ledger, TurnRig, catalog_of, pay_tool, yes

from signoff.engine.turn_client import TurnClient
from signoff.temporal.embedded_server import ServerHandle, find_temporal
from signoff.testing.scripted_model import calls, respond
from signoff.worker import PASSED_THROUGH

SCRIPT = [calls(("pay", {"amount": 20, "to": "Ana"})), respond("done")]


@pytest.mark.failure("WorkflowTaskFailed")
async def test_turn_blocked_by_a_broken_worker_continues_after_the_fix(
    server: ServerHandle, failure: Failure, turn_rig: TurnRig, ledger: Ledger
) -> None:
    catalog = catalog_of([pay_tool(ledger)])
    async with turn_rig.running(catalog, SCRIPT) as turns:
        key = await turns.start_waiting()
    runner = SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH, "broken_turn")
    )
    async with Worker(turn_rig.client, task_queue=turn_rig.task_queue, workflows=[Hesitant], workflow_runner=runner):
        body = yes(key).model_dump(mode="json", exclude_none=True)
        await turn_rig.client.get_workflow_handle(key.workflow_id).signal("approval_response", body)
        while "WorkflowTaskFailed" not in (shown := await history_of(server, key.workflow_id)):
            await asyncio.sleep(0.1)
    failure.assert_seen(shown)
    assert ledger.rows == []
    failure.follow("Deploy the fix", "turns continue")
    async with turn_rig.running(catalog, SCRIPT):
        result = await TurnClient(turn_rig.client, task_queue=turn_rig.task_queue, patience=PATIENCE).result(key)
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert len(ledger.rows) == 1


async def history_of(server: ServerHandle, workflow: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(str(find_temporal()), "workflow", "show", "--address", server.address, "--workflow-id", workflow),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output
    return output.decode()
