"""A worker process for tests that kill it: `killable_worker.py ADDRESS STORE_URL TASK_QUEUE LEDGER [HELD]`. Its `pay`
needs approval and appends a line to LEDGER. With HELD its turns continue while approvers decide. HELD is
`nothing`, or `model` or `tool`, which then waits until the file `go` is next to LEDGER and writes a file of its name.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from encrypted_client import encrypted_client
from session_rig import PAY, model
from turn_fixtures import ApprovalPolicy, Ledger, catalog_of, pay_tool, running_turns

from signoff import worker
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.message import ResultPart
from signoff.registry.tool_context import ToolContext
from signoff.store.store import open_store
from signoff.testing.scripted_model import ScriptedModel, calls, respond

_GLANCE_SECONDS = 0.05


def hand_over_soon() -> None:
    """The next worker takes a killed worker's turns after a second, not after the SDK's ten."""
    options = worker.worker_options

    def quicker(cached: int) -> Any:
        return {**options(cached), "sticky_queue_schedule_to_start_timeout": timedelta(seconds=1)}

    worker.worker_options = quicker


@contextlib.asynccontextmanager
async def killable(
    address: str, store_url: str, task_queue: str, ledger: Path, held: str = ""
) -> AsyncIterator[asyncio.subprocess.Process]:
    given = (str(Path(__file__)), address, store_url, task_queue, str(ledger), held)
    process = await asyncio.create_subprocess_exec(sys.executable, *given)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def wait_held(ledger: Path, name: str) -> None:
    (ledger.parent / name).touch()
    while not os.access(ledger.parent / "go", os.F_OK):
        await asyncio.sleep(_GLANCE_SECONDS)


def model_that_goes_on(ledger: Path, held: str) -> ScriptedModel:
    async def react(request: CompletionRequest) -> Completion:
        parts = [part for message in request.messages for part in message.parts if isinstance(part, ResultPart)]
        if not parts:
            return calls(PAY)
        late = [part for part in parts if part.late]
        if held == "model" and not late:
            await wait_held(ledger, "model")
        return respond(", ".join(part.type for part in late) or "asked")

    return ScriptedModel(react)


async def work(address: str, store_url: str, task_queue: str, ledger: Path, held: str) -> None:
    async def pay(args: dict[str, Any], ctx: ToolContext) -> str:
        with ledger.open("a") as file:
            file.write(f"{ctx.idempotency_key}\n")
        if held == "tool":
            await wait_held(ledger, "tool")
        return "paid"

    client = await encrypted_client(address)
    policy = ApprovalPolicy(while_waiting="continue" if held else "wait")
    catalog = catalog_of([pay_tool(Ledger(), policy, handler=pay)])
    driver = model_that_goes_on(ledger, held) if held else model()
    async with open_store(store_url) as store, running_turns(client, store, task_queue, catalog, driver):
        await asyncio.Event().wait()


if __name__ == "__main__":
    hand_over_soon()
    asyncio.run(work(*sys.argv[1:4], Path(sys.argv[4]), sys.argv[5]))
