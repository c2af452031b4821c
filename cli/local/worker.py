"""`worker`: the process of an installation that works, alone or as a part of another."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import typer
from temporalio.client import Client

from signoff.activities.capability_backends import built_in_backends
from signoff.audit.config_snapshots import note_catalog, people_followed
from signoff.cli.local.installation import Workplace, find_workplace
from signoff.cli.local.tools import inventory_table
from signoff.cli.terminal.log_setup import logged_to
from signoff.cli.terminal.options import Address, AsJson, Manifest, Model
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.stop_signals import stop_signals, until_stopped
from signoff.keys.key_files import FileVerifier
from signoff.registry.approver_coverage import check_approver_coverage
from signoff.registry.gates.inventory import inventory
from signoff.settings import login_roles, require_ready
from signoff.store.installed_store import make_state_dir, working_store
from signoff.store.roles import StoreRole
from signoff.store.store import Store
from signoff.temporal.embedded_server import check_server
from signoff.worker import build_worker, furnish, quicken

_log = logging.getLogger(__name__)
app = typer.Typer(rich_markup_mode=None)


@app.command()
def worker(manifest: Manifest = None, address: Address = None, model: Model = "", as_json: AsJson = False) -> None:
    """Run a worker: it asks models, judges calls and runs tools, until Ctrl-C."""
    run(lambda out: _worker(out, manifest, address, model), as_json=as_json)


@asynccontextmanager
async def running_worker(
    place: Workplace, client: Client, store: Store, *, task_queue: str
) -> AsyncIterator[asyncio.Task[None]]:
    """A worker until the block ends, then shut down; the task ends early only if the worker fails.

    Policies and people that differ from those last recorded are recorded, at the start and when they change.
    Raises `ConfigError` for a model without a driver, a tool that nobody could ever approve, or a production profile
    that lacks something.
    """
    settings = place.settings
    # The public file alone: whoever takes a worker over must not be able to sign.
    verifier = FileVerifier(settings.public_keys)
    require_ready(settings, people=place.peopled, public_keys=bool(verifier.key_ids))
    check_approver_coverage(place.catalog, place.people, by_login=login_roles(settings))
    room = await furnish(
        place.catalog,
        store,
        people=place.people,
        profile=settings.profile,
        model=settings.model,
        verifier=verifier,
        backends=built_in_backends(settings.state_dir / "storage"),
        secrets=place.secrets,
    )
    worker = build_worker(client, room, task_queue=task_queue)
    if settings.profile == "production" and (said := role_problem(store.dialect, store.role)):
        _log.warning(said)
    where = f"worker {task_queue}"
    # Before the worker runs: the record has the policies before anything is judged by them.
    await note_catalog(store, place.catalog, where, clock=room.clock)
    async with people_followed(store, place.people, where, clock=room.clock):
        quicken()
        task = asyncio.create_task(worker.run())
        try:
            yield task
        finally:
            await worker.shutdown()
            await asyncio.gather(task, return_exceptions=True)


def role_problem(dialect: str, role: StoreRole) -> str:
    """Why a worker should not be connected so; "" where nothing is wrong, or on SQLite, which has no roles."""
    if dialect == "sqlite" or role == "worker":
        return ""
    return (
        f"the SIGNOFF_STORE_URL of this worker is the {role}'s of the store: who takes the worker over can answer for "
        "anybody; give it a role of its own (`signoff store roles`)"
    )


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
