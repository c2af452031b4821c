"""Servers that run tools of a catalog in place of handlers: what a worker needs of them, whatever they speak."""

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
        """Runs one call of the tool `name`, which was imported of `server`, once.

        Whatever is known not to have run is a failure with a sentence. Raises `InDoubt` where nobody knows.
        """
        ...

    async def problems(self) -> list[str]:
        """Returns a sentence for each server that cannot be used, and for each tool that is not as it was imported."""
        ...

    async def close(self) -> None:
        """Ends all connections, and the programs of servers that are some."""
        ...


def tool_servers(declared: Mapping[str, ToolServer], secrets: SecretProvider) -> ToolServers | None:
    """Makes the servers of a worker, none of which is spoken to yet; None where none is declared."""
    if not declared:
        return None
    # What only those need who declare a server is not loaded by the others.
    from signoff.activities.mcp.worker_servers import WorkerServers  # noqa: PLC0415

    return WorkerServers(declared, secrets)


@asynccontextmanager
async def use_servers(servers: ToolServers | None) -> AsyncIterator[None]:
    """Keeps servers for a block, and looks meanwhile what is wrong with them: no worker waits for one to start."""
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
    """Returns `tool`, run by its server where it was imported of one."""
    if tool.handler is not run_on_server or servers is None:
        return tool
    server = str(tool.settings["server"])

    async def run(args: dict[str, Any], context: ToolContext) -> Result:
        return await servers.run(server, tool.name, args)

    return dataclasses.replace(tool, handler=run)


async def _look(servers: ToolServers) -> None:
    for problem in await servers.problems():
        logger.warning("%s", problem)
