from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mail_kit import relay
from mail_post import Post

from signoff.testing.channels import ChannelSuite
from signoff.testing.vendor import Vendor


class TestEmail(ChannelSuite):
    @asynccontextmanager
    async def vendor(self) -> AsyncIterator[Vendor]:
        async with relay() as server:
            yield Post(server)
