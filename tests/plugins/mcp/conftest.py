"""One gateway for the whole session. Each test uses its own amounts."""

import uuid
from collections.abc import AsyncIterator

import pytest
from mcp_rig import McpRig, mcp_rig
from temporalio.client import Client

from signoff.store.store import open_store


@pytest.fixture(scope="session")
async def mcp(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[McpRig]:
    folder = tmp_path_factory.mktemp("mcp")
    async with (
        open_store(f"sqlite:///{folder}/signoff.db") as store,
        mcp_rig(client, store, f"mcp-{uuid.uuid4().hex[:12]}") as rig,
    ):
        yield rig
