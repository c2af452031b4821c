"""`gateway`: serves people and programs."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any

import typer

from signoff.activities.models.first_words import FirstMessage, first_message
from signoff.cli.local.installation import LocalInstallation, find_installation
from signoff.cli.terminal.log_setup import process_log
from signoff.cli.terminal.options import Address, AppArgument, AsJson, UnsafeOpen
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.stop_signals import stop_signals, until_stopped
from signoff.contracts.clock import system_clock
from signoff.engine.metrics_endpoint import MetricsEndpoint
from signoff.engine.span_process import open_spans
from signoff.engine.turn_client import TurnClient
from signoff.engine.worker_watch import WorkerWatch
from signoff.formats.web_address import address_of
from signoff.gateway.app import build_app
from signoff.gateway.auth.provider_people import with_provider_people
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.runtime import gateway_signer, gateway_tasks
from signoff.gateway.transport.server import running_server
from signoff.store.store import Store, make_state_dir, working_store
from signoff.temporal.server_connection import check_server

app = typer.Typer(rich_markup_mode=None)


@app.command()
def gateway(
    source: AppArgument = "",
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Its port.", show_default=False)] = None,
    unsafe_open: UnsafeOpen = False,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Run the gateway: the HTTP API and the inbox, until Ctrl-C."""
    settings = {"port": port, "unsafe_open": unsafe_open or None}
    run(lambda out: _gateway(out, source, address, settings), as_json=as_json)


@asynccontextmanager
async def running_gateway(
    place: LocalInstallation, signoff: TurnClient, store: Store
) -> AsyncIterator[asyncio.Task[None]]:
    """Run the gateway, which answers when the block begins.

    It also signs checkpoints of the audit log, records changes of its known people, and runs the channels. A channel
    that lacks something is named in a warning, and the others run. Raises `ServerUnavailable` for a taken port,
    `ConfigError` for a production profile that lacks something.
    """
    settings = place.settings
    first = _first_message(place)
    async with open_spans(settings, "gateway") as spans:
        deps = GatewayDeps(
            client=signoff,
            catalog=place.catalog,
            people=place.people,
            store=store,
            settings=settings,
            signer=await gateway_signer(settings, place.people, store),
            secrets=place.secrets,
            spans=spans,
            name=place.name,
            first_words=first.text,
            first_actor=first.actor,
            first_command=first.command,
        )
        deps = with_provider_people(deps)
        async with (
            gateway_tasks(deps, place.people) as receiver,
            running_server(build_app(deps, receiver), settings.host, settings.port) as task,
        ):
            yield task


async def _gateway(out: Output, source: str, address: str | None, overrides: Mapping[str, Any]) -> int:
    place = find_installation(source, **overrides)
    metrics = MetricsEndpoint(place.settings)
    make_state_dir(place.settings)
    as_json = place.settings.log == "json"
    with process_log(place.settings.state_dir, "gateway.log", as_json=as_json), stop_signals() as stop:
        signoff = await place.connect(address)
        await check_server(signoff.temporal)
        async with (
            working_store(place.settings) as store,
            metrics.serve(store, "gateway", WorkerWatch(signoff.temporal, signoff.task_queue)),
            running_gateway(place, signoff, store) as task,
        ):
            metrics.is_ready = True
            url, own = place.settings.public_url, address_of(place.settings.host, place.settings.port)
            listens = "" if url == own else f", this gateway at {own}"
            out.show({"url": url, "address": own}, f"Inbox     {url}{listens}; Ctrl-C stops it", compact=True)
            await until_stopped(stop, task)
            out.say("stopping")
    return 0


def _first_message(place: LocalInstallation) -> FirstMessage:
    """Return an empty one in production."""
    development = place.settings.profile == "development"
    return first_message(place.catalog, place.settings.model, at=system_clock()) if development else FirstMessage()
