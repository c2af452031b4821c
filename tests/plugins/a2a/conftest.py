"""Each test of A2A starts its own tasks."""

import uuid
from collections.abc import AsyncIterator

import pytest
from peer_rig import PeerRig, peer_rig
from temporalio.client import Client

from signoff.store.store import open_store


@pytest.fixture(scope="session")
async def peers(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PeerRig]:
    folder = tmp_path_factory.mktemp("peers")
    async with (
        open_store(f"sqlite:///{folder}/signoff.db") as store,
        peer_rig(client, store, f"peers-{uuid.uuid4().hex[:12]}") as rig,
    ):
        yield rig
