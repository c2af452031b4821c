from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cli_kit import Cli, run_in_thread
from served_stack import gateway_alone, worker_alone
from site_kit import Site
from store_fixtures import postgres_server

from signoff.temporal.embedded_server import ServerHandle, ServerOptions, free_port, run_server

__all__ = ["postgres_server"]


@pytest.fixture
def cli(clean_env: pytest.MonkeyPatch) -> Cli:
    return run_in_thread


@pytest.fixture(scope="module")
async def cli_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerHandle]:
    """Lists show and a freeze withdraws the requests of all tests on a server."""
    file = tmp_path_factory.mktemp("temporal") / "temporal.db"
    async with run_server(ServerOptions(file, port=free_port(), ui_port=None)) as handle:
        yield handle


@pytest.fixture
async def served_cli(
    cli: Cli, clean_env: pytest.MonkeyPatch, cli_server: ServerHandle, task_queue: str
) -> AsyncIterator[Cli]:
    async with gateway_alone(clean_env, cli_server, task_queue), worker_alone(cli_server, task_queue):
        yield cli


@pytest.fixture
def site(cli: Cli, tmp_path: Path, cli_server: ServerHandle, task_queue: str) -> Site:
    return Site(tmp_path, cli_server.address, task_queue, free_port())
