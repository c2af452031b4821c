"""A small desk, a worker for it in this process, and the command line as a function."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cli_kit import MANIFEST, Cli, run_in_thread
from site_kit import Site
from store_fixtures import postgres_server

from signoff.cli.local.installation import find_workplace
from signoff.cli.local.stores import working_store
from signoff.cli.local.worker import running_worker
from signoff.temporal.embedded_server import ServerHandle, ServerOptions, free_port, run_server

__all__ = ["postgres_server"]


@pytest.fixture
def cli(clean_env: pytest.MonkeyPatch) -> Cli:
    """The command line in an empty folder, without any variable of Signoff's or Temporal's."""
    return run_in_thread


@pytest.fixture(scope="module")
async def cli_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerHandle]:
    """A server on which nothing of other tests waits: lists show, and a freeze withdraws, whatever does."""
    file = tmp_path_factory.mktemp("temporal") / "temporal.db"
    async with run_server(ServerOptions(file, port=free_port(), ui_port=None)) as handle:
        yield handle


@pytest.fixture
async def desk(
    cli: Cli, clean_env: pytest.MonkeyPatch, cli_server: ServerHandle, task_queue: str
) -> AsyncIterator[Cli]:
    """The command line of a desk with a worker, on the module's server."""
    clean_env.setenv("SIGNOFF_MANIFEST", str(MANIFEST))
    clean_env.setenv("SIGNOFF_TASK_QUEUE", task_queue)
    clean_env.setenv("TEMPORAL_ADDRESS", cli_server.address)
    place = find_workplace()
    client = await cli_server.connect()
    async with (
        working_store(place.settings) as store,
        running_worker(place, client, store, task_queue=task_queue),
    ):
        yield cli


@pytest.fixture
def site(cli: Cli, tmp_path: Path, cli_server: ServerHandle, task_queue: str) -> Site:
    """Nothing but a manifest and a server on which no other module's turns wait."""
    return Site(tmp_path, cli_server.address, task_queue, free_port())
