import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from signoff.cli.local.gateway import running_gateway
from signoff.cli.local.installation import find_installation
from signoff.cli.local.worker import running_worker
from signoff.engine.turn_client import TurnClient
from signoff.store.store import working_store
from signoff.temporal.embedded_server import ServerHandle, free_port

PROJECT = Path(__file__).parent / "cli" / "cli_project"
MANIFEST = PROJECT / "signoff.yaml"


@contextlib.asynccontextmanager
async def gateway_alone(
    clean_env: pytest.MonkeyPatch, server: ServerHandle, task_queue: str, manifest: Path = MANIFEST
) -> AsyncIterator[None]:
    for name, value in (("MANIFEST", str(manifest)), ("TASK_QUEUE", task_queue), ("PORT", str(free_port()))):
        clean_env.setenv(f"SIGNOFF_{name}", value)
    clean_env.setenv("TEMPORAL_ADDRESS", server.address)
    place = find_installation()
    signoff = TurnClient(await server.connect(), task_queue=task_queue)
    async with working_store(place.settings) as store, running_gateway(place, signoff, store):
        yield


@contextlib.asynccontextmanager
async def worker_alone(server: ServerHandle, task_queue: str) -> AsyncIterator[None]:
    place = find_installation()
    async with (
        working_store(place.settings) as store,
        running_worker(place, await server.connect(), store, task_queue=task_queue),
    ):
        yield
