"""A worker as its own process, for tests that kill it: `killable_worker.py ADDRESS STORE_URL TASK_QUEUE LEDGER`.

Its `pay` asks people and appends a line to the file LEDGER.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from session_rig import model
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of, pay_tool, running_turns

from signoff.registry.tool_context import ToolContext
from signoff.store.store import open_store
from signoff.temporal.converter import DATA_CONVERTER


@contextlib.asynccontextmanager
async def killable(
    address: str, store_url: str, task_queue: str, ledger: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The worker's process; killed at the end if it still runs."""
    given = (str(Path(__file__)), address, store_url, task_queue, str(ledger))
    process = await asyncio.create_subprocess_exec(sys.executable, *given)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def work(address: str, store_url: str, task_queue: str, ledger: Path) -> None:
    """Run until killed."""

    async def pay(args: dict[str, Any], ctx: ToolContext) -> str:
        with ledger.open("a") as file:
            file.write(f"{ctx.idempotency_key}\n")
        return "paid"

    client = await Client.connect(address, data_converter=DATA_CONVERTER)
    tool = pay_tool(Ledger(), handler=pay)
    async with open_store(store_url) as store, running_turns(client, store, task_queue, catalog_of([tool]), model()):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:4], Path(sys.argv[4])))
