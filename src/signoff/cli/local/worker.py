"""`worker`: asks models, judges calls and runs tools."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import typer
from temporalio.client import Client
from temporalio.worker import WorkerDeploymentConfig

from signoff.approvals.argument_rows import plural
from signoff.cli.local.installation import LocalInstallation, find_installation
from signoff.cli.local.tools import inventory_table
from signoff.cli.terminal.log_setup import process_log
from signoff.cli.terminal.options import Address, AppArgument, AsJson, Model
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.stop_signals import stop_signals, until_stopped
from signoff.engine.metrics_endpoint import MetricsEndpoint
from signoff.registry.gates.inventory import inventory
from signoff.store.roles import StoreRole
from signoff.store.store import Store, make_state_dir, working_store
from signoff.temporal.server_connection import check_server
from signoff.worker import freeze_gc, installed_worker

_log = logging.getLogger(__name__)
app = typer.Typer(rich_markup_mode=None)


@app.command()
def worker(
    source: AppArgument = "",
    address: Address = None,
    model: Model = "",
    as_json: AsJson = False,
) -> None:
    """Run a worker: it asks models, judges calls and runs tools, until Ctrl-C."""
    run(lambda out: _worker(out, source, address, model), as_json=as_json)


@asynccontextmanager
async def running_worker(
    place: LocalInstallation,
    client: Client,
    store: Store,
    *,
    task_queue: str,
    deployment: WorkerDeploymentConfig | None = None,
) -> AsyncIterator[asyncio.Task[None]]:
    """The task ends early only if the worker fails. Raises as `installed_worker`."""
    if place.settings.profile == "production" and (problem := role_problem(store.dialect, store.role)):
        _log.warning(problem)
    async with installed_worker(place, client, store, task_queue=task_queue, deployment=deployment) as worker:
        freeze_gc()
        task = asyncio.create_task(worker.run())
        try:
            yield task
        finally:
            await worker.shutdown()
            await asyncio.gather(task, return_exceptions=True)


def role_problem(dialect: str, role: StoreRole) -> str:
    """Return "" for a role that a worker may use, and on SQLite, which has no roles."""
    if dialect == "sqlite" or role != "owner":
        return ""
    return (
        "the SIGNOFF_STORE_URL of this worker is that of the tables' owner: an attacker on the worker could answer for "
        "any person. Give it a separate role (`signoff store roles`)"
    )


async def _worker(out: Output, source: str, address: str | None, model: str) -> int:
    place = find_installation(source, model=model or None)
    metrics = MetricsEndpoint(place.settings)
    make_state_dir(place.settings)
    as_json = place.settings.log == "json"
    with process_log(place.settings.state_dir, "worker.log", as_json=as_json), stop_signals() as stop:
        signoff = await place.connect(address)
        await check_server(signoff.temporal)
        queue = place.task_queue
        async with (
            working_store(place.settings) as store,
            metrics.serve(store, "worker"),
            running_worker(place, signoff.temporal, store, task_queue=queue) as task,
        ):
            metrics.is_ready = True
            found = {"task_queue": queue, "namespace": signoff.temporal.namespace, "catalog": place.catalog.hash}
            out.show(
                found,
                f"Worker    task queue {queue}, {plural(place.catalog.registry.size, 'tool')}; Ctrl-C stops it",
                "",
                inventory_table(inventory(place.catalog)),
                compact=True,
            )
            await until_stopped(stop, task)
            out.say("stopping")
    return 0
