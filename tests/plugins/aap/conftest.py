"""One adapter for the whole session. Each test asks about its own orders."""

from collections.abc import AsyncIterator

import pytest
from aap_rig import Adapter, adapter
from call_rig import CallRig
from store_fixtures import postgres_server, postgres_url

__all__ = ["coder", "postgres_server", "postgres_url"]


@pytest.fixture(scope="session")
async def coder(agent: CallRig) -> AsyncIterator[Adapter]:
    async with adapter(agent) as found:
        yield found
