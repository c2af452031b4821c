"""A small desk, a worker for it in this process, and the command line as a function."""

from collections.abc import AsyncIterator

import pytest
from cli_kit import MANIFEST, Cli, run_in_thread

from signoff.cli.parts import running_worker, working_store
from signoff.cli.workplace import find_workplace
from signoff.embedded import ServerHandle


@pytest.fixture
def cli(clean_env: pytest.MonkeyPatch) -> Cli:
    """The command line in an empty folder, without any variable of Signoff's or Temporal's."""
    return run_in_thread


@pytest.fixture
async def desk(cli: Cli, clean_env: pytest.MonkeyPatch, server: ServerHandle, task_queue: str) -> AsyncIterator[Cli]:
    """The command line of a desk with a worker, on the session's server."""
    clean_env.setenv("SIGNOFF_MANIFEST", str(MANIFEST))
    clean_env.setenv("SIGNOFF_TASK_QUEUE", task_queue)
    clean_env.setenv("TEMPORAL_ADDRESS", server.address)
    place = find_workplace()
    client = await server.connect()
    async with (
        working_store(place.settings) as store,
        running_worker(place, client, store, task_queue=task_queue),
    ):
        yield cli
