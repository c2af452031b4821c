"""`worker` and `gateway`: the two processes of an installation, each alone."""

from pathlib import Path
from typing import Annotated

import typer

from signoff.cli.logs import logged_to
from signoff.cli.options import Address, AsJson, Manifest, Model
from signoff.cli.output import Output, run
from signoff.cli.parts import running_gateway, running_worker
from signoff.cli.stopping import stop_signals, until_stopped
from signoff.cli.stores import make_state_dir, working_store
from signoff.cli.tools import inventory_table
from signoff.cli.workplace import find_workplace
from signoff.embedded import check_server
from signoff.registry.inventory import inventory

app = typer.Typer(rich_markup_mode=None)


@app.command()
def worker(manifest: Manifest = None, address: Address = None, model: Model = "", as_json: AsJson = False) -> None:
    """Run a worker: it asks models, judges calls and runs tools, until Ctrl-C."""
    run(lambda out: _worker(out, manifest, address, model), as_json=as_json)


@app.command()
def gateway(
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Its port.", show_default=False)] = None,
    manifest: Manifest = None,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Run the gateway: the HTTP API and the inbox, until Ctrl-C."""
    run(lambda out: _gateway(out, port, manifest, address), as_json=as_json)


async def _worker(out: Output, manifest: Path | None, address: str | None, model: str) -> int:
    place = find_workplace(manifest, model=model or None)
    make_state_dir(place.settings)
    with logged_to(place.settings.state_dir, "worker.log"), stop_signals() as stop:
        signoff = await place.reach(address)
        await check_server(signoff.temporal)
        queue = place.task_queue
        async with (
            working_store(place.settings) as store,
            running_worker(place, signoff.temporal, store, task_queue=queue) as task,
        ):
            found = {"task_queue": queue, "namespace": signoff.temporal.namespace, "catalog": place.catalog.hash}
            out.show(
                found,
                f"Worker    task queue {queue}, {place.catalog.registry.size} tools; Ctrl-C stops it",
                "",
                inventory_table(inventory(place.catalog)),
                compact=True,
            )
            await until_stopped(stop, task)
            out.say("stopping")
    return 0


async def _gateway(out: Output, port: int | None, manifest: Path | None, address: str | None) -> int:
    place = find_workplace(manifest, port=port)
    make_state_dir(place.settings)
    with logged_to(place.settings.state_dir, "gateway.log"), stop_signals() as stop:
        signoff = await place.reach(address)
        await check_server(signoff.temporal)
        async with working_store(place.settings) as store, running_gateway(place, signoff, store) as task:
            url = place.settings.public_url
            out.show({"url": url}, f"Inbox     {url}; Ctrl-C stops it", compact=True)
            await until_stopped(stop, task)
            out.say("stopping")
    return 0
