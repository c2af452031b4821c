"""One enforcement point for the whole session. Each test asks about its own orders."""

from collections.abc import AsyncIterator

import pytest
from authzen_rig import EnforcementPoint, enforcement_point
from call_rig import CallRig


@pytest.fixture(scope="session")
async def point(agent: CallRig) -> AsyncIterator[EnforcementPoint]:
    async with enforcement_point(agent) as found:
        yield found
