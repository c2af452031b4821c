import uuid
from collections.abc import AsyncIterator

import pytest
from gateway_login import STRANGER, locked_rig
from gateway_rig import PEOPLE, GatewayRig, gateway_rig
from temporalio.client import Client

from signoff.people.directory import FixedDirectory
from signoff.store.store import open_store


@pytest.fixture(scope="session")
async def locked(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayRig]:
    """Each test starts its own turns."""
    folder, people = tmp_path_factory.mktemp("locked"), FixedDirectory((*PEOPLE, STRANGER))
    queue = f"locked-{uuid.uuid4().hex[:12]}"
    async with (
        open_store(f"sqlite:///{folder}/signoff.db") as store,
        gateway_rig(client, store, queue, profile="production", people=people) as found,
    ):
        yield locked_rig(found)
