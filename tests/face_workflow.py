"""A program whose workflow first uses a name of the public API: `python face_workflow.py ADDRESS TASK_QUEUE`."""

import asyncio
import os
import sys

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions


@workflow.defn
class AsksForTheFace:
    """Uses the name in the sandbox, like an author's module imported there."""

    @workflow.run
    async def run(self) -> str:
        from signoff import NotFound  # noqa: PLC0415

        return NotFound.__module__


async def main(address: str, task_queue: str) -> None:
    client = await Client.connect(address)
    runner = SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules("signoff"))
    async with Worker(client, task_queue=task_queue, workflows=[AsksForTheFace], workflow_runner=runner):
        assert "signoff.contracts.errors" not in sys.modules
        name = await client.execute_workflow(AsksForTheFace.run, id=task_queue, task_queue=task_queue)
        print("asked")
    import signoff  # noqa: PLC0415

    same = sys.modules[name].NotFound is signoff.NotFound
    print("same" if same else "another")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
    sys.stdout.flush()
    # Temporal's native threads can abort an interpreter that exits normally.
    os._exit(0)
