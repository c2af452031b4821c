"""One gateway on a port for all tests of A2A. Each starts its own tasks."""

import uuid
from collections.abc import AsyncIterator

import pytest
from peer_rig import PeerRig, peer_rig
from temporalio.client import Client

from signoff.store.store import open_store


@pytest.fixture(scope="session")
async def peers(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PeerRig]:
    """Run a worker and a gateway that other agents reach."""
    folder = tmp_path_factory.mktemp("peers")
    async with (
        open_store(f"sqlite:///{folder}/signoff.db") as store,
        peer_rig(client, store, f"peers-{uuid.uuid4().hex[:12]}") as rig,
    ):
        yield rig
