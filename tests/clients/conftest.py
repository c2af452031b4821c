"""A gateway that is served, where everybody has to sign in, and a client of an external agent's before it."""

import uuid
from collections.abc import AsyncIterator

import pytest
from call_rig import call_rig, call_token
from client_rig import ClientRig
from gateway_login import locked_rig
from temporalio.client import Client

from signoff.store.store import open_store


@pytest.fixture(scope="session")
async def rig(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClientRig]:
    """One for all tests; each asks for calls of its own."""
    folder = tmp_path_factory.mktemp("clients")
    async with (
        open_store(f"sqlite:///{folder}/signoff.db") as store,
        call_rig(client, store, f"clients-{uuid.uuid4().hex[:12]}") as agent,
    ):
        token = await call_token(agent.rig, "coder")
        rig = ClientRig(agent, locked_rig(agent.rig).app, token)
        async with rig.serve() as url:
            rig.url = url
            yield rig
