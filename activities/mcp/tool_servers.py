"""The worker's interface to servers that run tools of a catalog, for any protocol."""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from signoff.keys.secrets import SecretProvider
from signoff.registry.mcp.tool_server import ToolServer, run_on_server
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import Result

logger = logging.getLogger("signoff.activities")


class ToolServers(Protocol):
    """The servers of one worker."""

    async def run(self, server: str, name: str, args: Mapping[str, Any]) -> Result:
        """Run one call of `name`, imported from `server`, once.

        If the call certainly did not run, the result is a failure with a message. Raises `InDoubt` if the outcome is
        unknown.
        """
        ...

    async def problems(self) -> list[str]:
        """Return a sentence for each unusable server, and for each tool that differs from its import."""
        ...

    async def close(self) -> None:
        """End all connections, and the servers' programs."""
        ...


def tool_servers(declared: Mapping[str, ToolServer], secrets: SecretProvider) -> ToolServers | None:
    """Does not connect. `None` if no server is declared."""
    if not declared:
        return None
    # Load these modules only for workers that declare a server.
    from signoff.activities.mcp.worker_servers import WorkerServers  # noqa: PLC0415

    return WorkerServers(declared, secrets)


@asynccontextmanager
async def use_servers(servers: ToolServers | None) -> AsyncIterator[None]:
    """Keep servers open for a block, and check them in the background: no worker waits for one to start."""
    if servers is None:
        yield
        return
    looking = asyncio.create_task(_look(servers))
    try:
        yield
    finally:
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking
        await servers.close()


def bind_to_servers(tool: Tool, servers: ToolServers | None) -> Tool:
    if tool.handler is not run_on_server or servers is None:
        return tool
    server = str(tool.settings["server"])

    async def run(args: dict[str, Any], context: ToolContext) -> Result:
        return await servers.run(server, tool.name, args)

    return dataclasses.replace(tool, handler=run)


async def _look(servers: ToolServers) -> None:
    for problem in await servers.problems():
        logger.warning("%s", problem)
