"""`dev`: Temporal's server, a worker and the gateway in one terminal."""

import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from temporalio.client import Client

from signoff.activities.models.drivers import SCRIPTED
from signoff.activities.models.first_words import ask_command, offline_usage
from signoff.activities.models.offline_choice import take_offline
from signoff.approvals.argument_rows import plural
from signoff.cli.local.codec import running_codec
from signoff.cli.local.gateway import running_gateway
from signoff.cli.local.installation import LocalInstallation, find_installation, server_is_configured, write_running
from signoff.cli.local.temporal_ui import running_ui_proxy
from signoff.cli.local.tools import inventory_table
from signoff.cli.local.worker import running_worker
from signoff.cli.terminal.log_setup import process_log
from signoff.cli.terminal.options import Address, AppArgument, AsJson, Model, UnsafeOpen
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.stop_signals import stop_signals, until_stopped
from signoff.client.dev_process import DevProcess
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.clock import system_clock
from signoff.contracts.errors import ConfigError, ServerUnavailable
from signoff.contracts.ids import show_code
from signoff.contracts.names import DEFAULT_TENANT, OFFLINE_MODEL, VERSION
from signoff.engine.connection import open_encryption
from signoff.engine.metrics_endpoint import MetricsEndpoint
from signoff.engine.turn_client import TurnClient
from signoff.formats.nearest_name import quote_name
from signoff.registry.catalog import Catalog
from signoff.registry.gates.inventory import inventory
from signoff.registry.program.program import Program
from signoff.settings import exposure_warnings, require_closed
from signoff.store.questions.request_lists import RequestLists
from signoff.store.store import Store, make_state_dir, working_store
from signoff.temporal.embedded_server import ServerHandle, ServerOptions, hidden_ui_address, run_server
from signoff.temporal.encryption import Encryption
from signoff.temporal.server_connection import LOOPBACK, connect, ensure_search_attributes

_UNDECLARED_SHOWN: Final = 10
DATABASE_NAME: Final = "temporal.db"
NO_ACTOR_TO_ASK: Final = "every actor is external: propose a call as docs/external-calls.md shows"

app = typer.Typer(rich_markup_mode=None)

Port = Annotated[int | None, typer.Option(min=1, max=65535, help="The inbox's port.", show_default=False)]
TemporalPort = Annotated[int | None, typer.Option(min=1, max=65535, help="The server's port.", show_default=False)]
UiPort = Annotated[int | None, typer.Option(min=1, max=65535, help="The port of Temporal's UI.", show_default=False)]


@dataclass(frozen=True)
class DevServer:
    """`handle` is `None` for a server that was already running."""

    client: Client
    address: str
    handle: ServerHandle | None
    ui_url: str | None = None
    """The address of the proxy before Temporal's own UI."""
    ui_task: asyncio.Task[None] | None = None


@app.command()
def dev(
    source: AppArgument = "",
    port: Port = None,
    temporal_port: TemporalPort = None,
    ui_port: UiPort = None,
    no_ui: Annotated[bool, typer.Option("--no-ui", help="Without Temporal's own UI.")] = False,
    durable: Annotated[
        bool,
        typer.Option("--durable", help="Write every step through to the disk: survives a power cut, half as fast."),
    ] = False,
    unsafe_open: UnsafeOpen = False,
    no_raw_answers: Annotated[
        bool,
        typer.Option("--no-raw-answers", help="Refuse answers and starts that come past the gateway, unsigned."),
    ] = False,
    address: Address = None,
    model: Model = "",
    as_json: AsJson = False,
) -> None:
    """Run everything in this terminal, until Ctrl-C. The next start continues where this one stopped."""
    settings = {
        "port": port,
        "temporal_port": temporal_port,
        "ui_port": ui_port,
        "durable": durable or None,
        "unsafe_open": unsafe_open or None,
        "raw_answers": False if no_raw_answers else None,
        "model": model or None,
    }
    run(lambda out: _dev(out, source, address, settings, not no_ui), as_json=as_json)


def run_program(program: Program, reference: str, settings: Mapping[str, Any]) -> int:
    """Run everything until Ctrl-C, and return the exit code. Raises `SignoffError`.

    `reference` names the program for other processes, which find it in the file that `dev` writes.
    """
    given = {**settings, "app": reference}
    return asyncio.run(_dev(Output(sys.stdout, as_json=False), "", None, given, True, program))


async def _dev(
    out: Output,
    source: str,
    address: str | None,
    overrides: Mapping[str, Any],
    ui: bool,
    program: Program | None = None,
) -> int:
    place = find_installation(source, program=program, **overrides)
    if place.settings.profile == "production":
        raise ConfigError(
            "`profile` is `production`, and `signoff dev` is for development: run `signoff worker` and "
            "`signoff gateway`, each under a separate user",
            field="profile",
        )
    # Check before anything starts; the gateway checks again.
    require_closed(place.settings)
    catalog, lacks = (place.catalog, ()) if place.settings.model else take_offline(place.catalog)
    place = replace(place, catalog=catalog)
    metrics = MetricsEndpoint(place.settings)
    make_state_dir(place.settings)
    with process_log(place.settings.state_dir, as_json=place.settings.log == "json"), stop_signals() as stop:
        async with AsyncExitStack() as stack:
            # Keep this order: the gateway stops first, then the worker, then the server.
            store = await stack.enter_async_context(working_store(place.settings))
            await stack.enter_async_context(metrics.serve(store, "dev"))
            encryption = await open_encryption(place.settings, place.secrets)
            server = await stack.enter_async_context(_server(place, encryption, address, ui))
            stack.callback(out.say, "stopping: Temporal" if server.handle else "stopping: the server keeps running")
            queue = place.settings.task_queue
            worker = await stack.enter_async_context(running_worker(place, server.client, store, task_queue=queue))
            stack.callback(out.say, "stopping: worker")
            signoff = TurnClient(server.client, task_queue=queue)
            gateway = await stack.enter_async_context(running_gateway(place, signoff, store))
            stack.callback(out.say, "stopping: gateway")
            codec: list[asyncio.Task[None]] = []
            if encryption is not None and encryption.writes:
                namespace = server.client.namespace
                running = running_codec(place, store, encryption, namespace)
                codec.append(await stack.enter_async_context(running))
            metrics.is_ready = True
            # Published last and removed first, so that a command in another terminal finds everything running.
            stack.enter_context(_leave_word(place, server))
            await _greet(out, place, server, store, lacks)
            async with _watch_server(server) as ended:
                await until_stopped(stop, worker, gateway, *codec, *ended)
    out.say("stopped; started again, it takes up where it stopped")
    return 0


@asynccontextmanager
async def _server(
    place: LocalInstallation, encryption: Encryption | None, address: str | None, ui: bool
) -> AsyncIterator[DevServer]:
    settings = place.settings
    if address or server_is_configured():
        client = await connect(address, encryption=encryption)
        await ensure_search_attributes(client)
        yield DevServer(client, client.service_client.config.target_host, None)
        return
    ui_host, ui_port = hidden_ui_address()
    options = ServerOptions(
        db_file=settings.state_dir / DATABASE_NAME,
        port=settings.temporal_port,
        ui_host=ui_host,
        ui_port=ui_port if ui else None,
        codec_url=settings.codec_url if settings.encryption else "",
        binary=settings.temporal_binary,
        durable=settings.durable,
        fair=len({person.tenant for person in place.people.all()}) > 1,
        retention_days=settings.retention,
    )
    async with run_server(options) as handle:
        server = DevServer(await handle.connect(encryption), handle.address, handle)
        if handle.ui_url is None:
            yield server
            return
        async with running_ui_proxy(settings, handle.ui_url, LOOPBACK) as task:
            yield replace(server, ui_url=f"http://{LOOPBACK}:{settings.ui_port}", ui_task=task)


@asynccontextmanager
async def _watch_server(server: DevServer) -> AsyncIterator[tuple[asyncio.Task[None], ...]]:
    """Yield tasks that fail when the embedded server or its UI proxy ends, none for a foreign server."""
    if server.handle is None:
        yield ()
        return
    task = asyncio.create_task(_wait_until_ended(server.handle))
    try:
        yield (task, server.ui_task) if server.ui_task is not None else (task,)
    finally:
        task.cancel()


async def _wait_until_ended(handle: ServerHandle) -> None:
    code = await handle.wait()
    raise ServerUnavailable(f"Temporal's server ended unexpectedly (exit code {code}): see `{handle.options.log}`")


@contextmanager
def _leave_word(place: LocalInstallation, server: DevServer) -> Iterator[None]:
    running = DevProcess(
        pid=os.getpid(),
        address=server.address,
        namespace=server.client.namespace,
        task_queue=place.settings.task_queue,
        manifest=str(place.settings.manifest.absolute()),
        app=place.settings.app,
        folder=str(Path.cwd()),
        url=place.settings.public_url,
    )
    try:
        path = write_running(place.settings, running)
    except OSError as error:
        raise ConfigError(f"the folder `{place.settings.state_dir}` cannot be written: {error.strerror}") from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


async def _greet(out: Output, place: LocalInstallation, server: DevServer, store: Store, lacks: Sequence[str]) -> None:
    settings = place.settings
    waiting = len(await RequestLists(store).list_waiting(DEFAULT_TENANT))
    undeclared = await _find_undeclared(place, store)
    asks = f"{plural(waiting, 'request')} for people, see `signoff inbox`" if waiting else "nothing yet"
    found: dict[str, Any] = {
        "inbox": settings.public_url,
        "temporal": server.address,
        "temporal_ui": server.ui_url,
        "waiting": waiting,
    }
    found["undeclared"] = {show_code(each.code): each.tool for each in undeclared}
    command = ask_command(place.catalog, settings.model, at=system_clock())
    named = f"{place.name}: " if place.name else ""
    lines = [
        f"{named}Signoff {VERSION}, development profile without sign-in: choose a person with --as or in the inbox",
        "",
        f"Inbox     {settings.public_url}",
        f"Temporal  {server.ui_url or 'without its UI'}  (server {server.address})",
        *(f"Model     {line}" for line in model_lines(place.catalog, settings.model, lacks)),
        f"Files     {settings.state_dir.absolute()}",
        f"Waiting   {asks}",
        *(f"Warning   {warning}" for warning in exposure_warnings(settings)),
        *(f"Warning   {_undeclared_line(each)}" for each in undeclared[:_UNDECLARED_SHOWN]),
        *([f"Warning   {left} more of such requests"] if (left := len(undeclared) - _UNDECLARED_SHOWN) > 0 else []),
        f"Try       {_activation()}{command}" if command else f"Try       {NO_ACTOR_TO_ASK}",
        "",
    ]
    out.show(found, *lines, inventory_table(inventory(place.catalog)), "", "Ctrl-C stops everything", compact=True)


def _activation() -> str:
    """Return "" if `signoff` is already on the PATH of a second terminal."""
    folder = Path(sys.prefix, "bin")
    there, activate = shutil.which("signoff"), folder / "activate"
    if not activate.exists() or (there and Path(there).resolve() == (folder / "signoff").resolve()):
        return ""
    near = activate.relative_to(Path.cwd()) if activate.is_relative_to(Path.cwd()) else activate
    return f". {shlex.quote(str(near))} && "


async def _find_undeclared(place: LocalInstallation, store: Store) -> list[ApprovalRequest]:
    lists = RequestLists(store)
    tenants = sorted({DEFAULT_TENANT, *(person.tenant for person in place.people.all())})
    waiting = [each for tenant in tenants for each in await lists.list_waiting(tenant)]
    return [each for each in waiting if not place.catalog.declares(each)]


def _undeclared_line(request: ApprovalRequest) -> str:
    return (
        f"request {show_code(request.code)} waits for the tool {quote_name(request.tool)}, which nothing declares: "
        "declare it again, or deny the request"
    )


def model_lines(catalog: Catalog, instead: str = "", lacks: Sequence[str] = ()) -> list[str]:
    """`lacks` lists the missing parts of models that `offline` replaces."""
    shown = offline_usage(catalog, instead)
    understood = f"; it understands `{shown}`" if shown else ""
    lines = []
    for model in catalog.models:
        if model == OFFLINE_MODEL:
            lines += [f"{model}, because {lack}{understood}" for lack in lacks] or [f"{model}{understood}"]
        elif not model.startswith(SCRIPTED):
            lines.append(model)
        elif instead:
            lines.append(f"{instead}, instead of the manifest's script{understood if instead == OFFLINE_MODEL else ''}")
        else:
            lines.append(
                f"a script of a few sentences ({model}), because no model is set: "
                "set SIGNOFF_MODEL or add --model, such as openai:gpt-5"
            )
    return lines
