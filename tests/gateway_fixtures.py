"""Two gateways serve the whole session. Each test starts its own turns."""

import uuid
from collections.abc import AsyncIterator

import pytest
from call_rig import CallRig, call_rig
from gateway_rig import GatewayRig, gateway_rig
from temporalio.client import Client

from signoff.store.store import Store, open_store


@pytest.fixture(scope="session")
async def gateway(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayRig]:
    folder = tmp_path_factory.mktemp("gateway")
    async with (
        open_store(f"sqlite:///{folder}/signoff.db") as store,
        gateway_rig(client, store, f"gateway-{uuid.uuid4().hex[:12]}") as rig,
    ):
        yield rig


@pytest.fixture
async def rig(client: Client, store: Store, task_queue: str) -> AsyncIterator[GatewayRig]:
    """For tests that concern a whole tenant."""
    async with gateway_rig(client, store, task_queue) as found:
        yield found


@pytest.fixture(scope="session")
async def agent(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CallRig]:
    folder = tmp_path_factory.mktemp("calls")
    async with (
        open_store(f"sqlite:///{folder}/signoff.db") as store,
        call_rig(client, store, f"calls-{uuid.uuid4().hex[:12]}") as rig,
    ):
        yield rig
