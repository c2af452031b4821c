"""A worker or a gateway of the production profile, for tests that kill it: `killable_stack.py worker|gateway ADDRESS
FOLDER QUEUE PORT`. FOLDER holds the store, both key files, the ledger and the files that the tools wait for. Prints
one line when it is ready.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import temporalio.activity
import temporalio.client
import temporalio.worker
from call_rig import refund_tool
from encrypted_client import encrypted_client
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Worker
from turn_fixtures import Ledger, catalog_of, pay_tool, running_turns

from signoff.activities.run_once import tool_activities
from signoff.contracts import names
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.person import Person
from signoff.engine.turn_client import TurnClient
from signoff.gateway.app import build_app
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.transport.server import serve
from signoff.gateway.vendors.channel_tasks import run_channels
from signoff.keys.key_files import FileVerifier, create_key, read_private
from signoff.keys.signatures import Signer
from signoff.registry.actor import Actor, ExternalAgent
from signoff.registry.catalog import Catalog
from signoff.registry.manifest.channel_sections import RoutingRules
from signoff.registry.tool_context import ToolContext
from signoff.settings import Settings
from signoff.store.store import open_store
from signoff.testing.builders import a_person
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results

TOOLS = ("before", "during", "undispatched", "inside", "after", "judged")
"""One for each moment of a kill. All write a line to the ledger."""
PEOPLE = (Person(id="guest", name="Guest"), a_person("ana", name="Ana"))
_GLANCE_SECONDS = 0.05


def store_url(folder: Path) -> str:
    return f"sqlite:///{folder}/signoff.db"


def make_keys(folder: Path) -> None:
    create_key(folder / "private.json", folder / "public.json", datetime.now(UTC))


def lines(folder: Path, name: str = "ledger") -> list[str]:
    """One tool per line, in order. `asked` holds the model's proposals."""
    ledger = folder / name
    return ledger.read_text().splitlines() if ledger.exists() else []


async def seen(file: Path) -> None:
    while not os.access(file, os.F_OK):
        await asyncio.sleep(_GLANCE_SECONDS)


def catalog_with(folder: Path, queue: str) -> Catalog:
    """`undispatched` runs on its own queue, which is not polled before the file `go` exists."""

    async def run(name: str, ctx: ToolContext) -> str:
        with (folder / "ledger").open("a") as ledger:
            ledger.write(f"{name}\n")
        if name == "inside":
            (folder / "inside").touch()
            await seen(folder / "go")
        return "done"

    def tool(name: str) -> Any:
        async def handler(args: dict[str, Any], ctx: ToolContext) -> str:
            return await run(name, ctx)

        late = {"task_queue": f"{queue}-late"} if name == "undispatched" else {}
        return pay_tool(Ledger(), name=name, handler=handler, **late)

    actors = [
        Actor(name="desk", model="scripted"),
        Actor(name="coder", model="", external=ExternalAgent(acts_for=("user:guest",))),
    ]
    tools = [*(tool(name) for name in TOOLS), refund_tool()]
    return catalog_of(tools, people=PEOPLE, actors=actors)


def model(folder: Path) -> ScriptedModel:
    def react(request: CompletionRequest) -> Completion:
        if results(request):
            return respond("done")
        tool = last_user_text(request)
        with (folder / "asked").open("a") as asked:
            asked.write(f"{tool}\n")
        return calls((tool, {"amount": 1}))

    return ScriptedModel(react)


class _Held(ActivityInboundInterceptor):
    """Holds the worker after a tool's outcome is recorded, or a model's calls are judged, before it reports them."""

    def __init__(self, after: ActivityInboundInterceptor, folder: Path) -> None:
        super().__init__(after)
        self._folder = folder

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        reply = await super().execute_activity(input)
        kind = temporalio.activity.info().activity_type
        held = "judged" if kind == names.MODEL and any(call.tool == "judged" for call in reply.calls) else kind
        if held in ("after", "judged"):
            (self._folder / held).touch()
            await seen(self._folder / "go")
        return reply


class _Hold(temporalio.client.Interceptor, temporalio.worker.Interceptor):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Held(next, self._folder)


async def work(address: str, folder: Path, queue: str) -> None:
    hold = _Hold(folder)
    client = await encrypted_client(address, interceptors=[hold])
    keys = FileVerifier(folder / "public.json")
    catalog = catalog_with(folder, queue)
    async with (
        open_store(store_url(folder)) as store,
        running_turns(client, store, queue, catalog, model(folder), profile="production", verifier=keys) as found,
    ):
        print("ready", flush=True)
        await seen(folder / "go")
        async with Worker(client, task_queue=f"{queue}-late", activities=tool_activities(found.deps)):
            await asyncio.Event().wait()


async def look_after(address: str, folder: Path, queue: str, port: int) -> None:
    client = await encrypted_client(address)
    catalog = catalog_with(folder, queue)
    async with open_store(store_url(folder)) as store:
        deps = GatewayDeps(
            client=TurnClient(client, task_queue=queue),
            catalog=catalog,
            people=catalog.people,
            store=store,
            settings=Settings(profile="production", port=port),
            signer=Signer(read_private(folder / "private.json")),
        )
        # As `signoff gateway` does: it delivers stored answers to the turns, also after the server returns.
        async with run_channels(deps, {}, RoutingRules()):
            await serve(build_app(deps), "127.0.0.1", port, ready=lambda: print("ready", flush=True))


@contextlib.asynccontextmanager
async def killable(
    role: str, address: str, folder: Path, queue: str, port: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    given = (str(Path(__file__)), role, address, str(folder), queue, str(port))
    with (folder / f"{role}.log").open("a") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *given, stdout=asyncio.subprocess.PIPE, stderr=log
        )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"ready\n", (folder / f"{role}.log").read_text()[-2_000:]
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def main(role: str, address: str, folder: Path, queue: str, port: int) -> None:
    if role == "gateway":
        await look_after(address, folder, queue, port)
    else:
        await work(address, folder, queue)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4], int(sys.argv[5])))
