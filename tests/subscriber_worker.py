"""A worker as a separate process with subscribers in its catalog, for tests that kill it: `... ADDRESS FOLDER QUEUE
PORT`.

FOLDER holds the store and `event_log.py`, the handler of docs/events.md. PORT is that of its webhook."""

import asyncio
import contextlib
import importlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from encrypted_client import encrypted_client
from turn_fixtures import Ledger, catalog_of, pay_tool, running_turns

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.person import Person
from signoff.registry.catalog import Catalog
from signoff.registry.manifest.channel_sections import DeclaredChannel, RoutingRules
from signoff.registry.manifest.subscription_sections import Subscription
from signoff.registry.tool_context import ToolContext
from signoff.store.store import open_store
from signoff.testing.builders import a_person
from signoff.testing.scripted_model import ScriptedModel, calls, respond, results

SECRET = "correct horse battery"
BO = "bo@people.example"
PEOPLE = (
    Person(id="guest", name="Guest"),
    a_person("bo", name="Bo", identities={"email": (BO,)}),
)
_LOGIN: dict[str, Any] = {
    "type": "object",
    "properties": {"amount": {"type": "number"}, "password": {"type": "string", "writeOnly": True}},
    "required": ["amount", "password"],
}


def store_url(folder: Path) -> str:
    return f"sqlite:///{folder}/signoff.db"


def subscribed_catalog(folder: Path, port: int, options: Any) -> Catalog:
    async def run(args: dict[str, Any], ctx: ToolContext) -> str:
        with (folder / "ledger").open("a") as ledger:
            ledger.write(f"{ctx.idempotency_key}\n")
        return "done"

    given: dict[str, Any] = {"input_schema": _LOGIN, "effect": "Spend {amount}", "handler": run}
    own: dict[str, Any] = {"scope": "specialist", "justification": "only the desk does this"}
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    keep = importlib.import_module("event_log").keep
    return catalog_of(
        [pay_tool(Ledger(), **given), pay_tool(Ledger(), name="vault", **own, **given)],
        people=PEOPLE,
        channels=[DeclaredChannel("mail", "email", options)],
        routing=RoutingRules(default=("mail",)),
        subscriptions=[
            Subscription(
                "finance-feed",
                ("turn.*", "tool_call*", "approval.*"),
                url=f"http://127.0.0.1:{port}/events",
                secret="env:FINANCE_SECRET",
                allow_networks=("127.0.0.0/8",),
            ),
            Subscription("desk-log", ("turn.*", "tool_call*", "approval.*"), handler=keep, actor="desk"),
            Subscription("clerk-log", ("tool_call*", "approval.*"), handler=_never),
        ],
    )


async def _never(event: Any) -> None:
    """A specialist's event would end the test."""
    assert not event.private, event


def react(request: CompletionRequest) -> Completion:
    args = {"amount": 20, "password": SECRET}
    return respond("done") if results(request) else calls(("pay", args), ("vault", args))


@contextlib.asynccontextmanager
async def killable(address: str, folder: Path, queue: str, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    given = (str(Path(__file__)), address, str(folder), queue, str(port))
    process = await asyncio.create_subprocess_exec(sys.executable, *given, stdout=asyncio.subprocess.PIPE, cwd=folder)
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def work(address: str, folder: Path, queue: str, port: int) -> None:
    client = await encrypted_client(address)
    catalog = subscribed_catalog(folder, port, {})
    async with (
        open_store(store_url(folder)) as store,
        running_turns(client, store, queue, catalog, ScriptedModel(react)),
    ):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
