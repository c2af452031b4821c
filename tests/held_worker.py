"""A worker process whose gates, on a repeated call, write the question and never answer: `held_worker.py ADDRESS
STORE_URL TASK_QUEUE WAY LEDGER`. Its tests kill it there.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from encrypted_client import encrypted_client
from killable_worker import hand_over_soon
from temporalio import activity
from turn_fixtures import AMOUNT_SCHEMA, ApprovalPolicy, Ledger, catalog_of, pay_tool, running_turns

from signoff.activities import gate_activity
from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts import names
from signoff.contracts.audit import AuditEntry
from signoff.people.directory import development_directory
from signoff.registry.catalog import Catalog
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolFailure
from signoff.store.store import open_store
from signoff.testing.builders import a_person
from signoff.testing.scripted_model import calls, respond

PAY = {"amount": 20, "to": "Ana"}
EDITED = PAY | {"amount": 15}
WAYS = ("changed", "in_doubt", "fallback", "edited")
"""Reasons for a request without a completion: a tool changed, is in doubt or failed, or an approver edited
arguments."""
PEOPLE = development_directory([a_person(name) for name in ("approver", "ana")])


def catalog_with(way: str, ledger: Path, *, old: bool = False) -> Catalog:
    async def pay(args: dict[str, Any], ctx: ToolContext) -> str:
        with ledger.open("a") as file:
            file.write(f"{args['amount']}\n")
        return "paid"

    async def fail(args: dict[str, Any], ctx: ToolContext) -> ToolFailure:
        return ToolFailure("the market is shut")

    properties = AMOUNT_SCHEMA["properties"] | ({} if old else {"note": {"type": "string"}})
    policy = ApprovalPolicy(edit="approve", quorum=2) if way == "edited" else True
    tools = [pay_tool(Ledger(), policy, handler=pay, input_schema=AMOUNT_SCHEMA | {"properties": properties})]
    if way == "fallback":
        free = {"requires_approval": False, "read_only": True, "fallbacks": ("pay",), "effect": ""}
        tools.append(pay_tool(Ledger(), name="rates", handler=fail, **free))
    return catalog_of(tools)


def script(way: str) -> list[Any]:
    return [calls(("rates" if way == "fallback" else "pay", PAY)), respond("done")]


@contextlib.asynccontextmanager
async def held(
    address: str, store_url: str, task_queue: str, way: str, ledger: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    given = (str(Path(__file__)), address, store_url, task_queue, way, str(ledger))
    process = await asyncio.create_subprocess_exec(sys.executable, *given)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def work(address: str, store_url: str, task_queue: str, way: str, ledger: Path) -> None:
    write = gate_activity.write

    async def held_back(deps: WorkerDeps, entries: Sequence[AuditEntry]) -> None:
        await write(deps, entries)
        # The gates report about a completion in the model's activity.
        if activity.info().activity_type == names.GATE:
            await asyncio.Event().wait()

    gate_activity.write = held_back
    client = await encrypted_client(address)
    async with (
        open_store(store_url) as store,
        running_turns(client, store, task_queue, catalog_with(way, ledger), script(way), people=PEOPLE),
    ):
        await asyncio.Event().wait()


if __name__ == "__main__":
    hand_over_soon()
    asyncio.run(work(*sys.argv[1:5], Path(sys.argv[5])))
