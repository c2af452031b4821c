"""The MCP servers of one worker: runs calls of imported tools on them, and says which of them cannot be used."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from signoff.activities.mcp.answer_content import call_result
from signoff.activities.mcp.connection import CallRefused, ServerConnection
from signoff.channels.outbound_http import Resolve, resolve_host
from signoff.contracts.errors import Unavailable
from signoff.keys.secrets import SecretProvider
from signoff.registry.mcp.imported_tool import ImportedTool, Listing, catalog_name, changed_fields, read_listing
from signoff.registry.mcp.tool_server import ToolServer
from signoff.registry.results.tool_result import Result, ToolFailure

logger = logging.getLogger("signoff.activities")

REMEDY: Final = "look at the change and run `signoff mcp import {}`"


class StaleTool(Exception):
    """A tool is not any more what was imported; says how."""


class WorkerServers:
    """Holds a connection to each server of a catalog; `resolve` finds the addresses behind their names."""

    def __init__(
        self, servers: Mapping[str, ToolServer], secrets: SecretProvider, resolve: Resolve = resolve_host
    ) -> None:
        self._connections = {name: ServerConnection(server, secrets, resolve) for name, server in servers.items()}

    async def run(self, server: str, name: str, args: Mapping[str, Any]) -> Result:
        """See `signoff.activities.mcp.tool_servers.ToolServers`."""
        connection = self._connections[server]
        imported = connection.server.tools[name]
        try:
            answer = await connection.call(
                imported.remote_name, args, partial(check_current, connection.server, name, imported)
            )
        except StaleTool as stale:
            logger.warning("%s; %s", stale, REMEDY.format(server))
            return ToolFailure(f"Not run: {stale}. It is stale until a developer has looked at it.", "not_available")
        except Unavailable as error:
            logger.warning("%s: %s", name, error.message)
            return ToolFailure(f"Not run: {error.message}", "not_available")
        except CallRefused as refused:
            return ToolFailure(str(refused))
        return call_result(answer)

    async def problems(self) -> list[str]:
        """See `signoff.activities.mcp.tool_servers.ToolServers`."""
        found = await asyncio.gather(*(self._problems(each) for each in self._connections.values()))
        return [problem for problems in found for problem in problems]

    async def list_tools(self, server: str) -> Listing:
        """Lists the tools of a server as they would be imported now. Raises `Unavailable`."""
        return read_listing(server, await self._connections[server].list_tools())

    async def close(self) -> None:
        """See `signoff.activities.mcp.tool_servers.ToolServers`."""
        await asyncio.gather(*(each.close() for each in self._connections.values()))

    async def _problems(self, connection: ServerConnection) -> list[str]:
        server = connection.server
        if not server.tools:
            return [f"no tool of the MCP server `{server.name}` was imported: run `signoff mcp import {server.name}`"]
        try:
            listed = await connection.list_tools()
        except Unavailable as error:
            return [error.message]
        found: list[str] = []
        for name, imported in server.tools.items():
            try:
                check_current(server, name, imported, listed)
            except StaleTool as stale:
                found.append(f"{stale}; {REMEDY.format(server.name)}")
        return found


def check_current(server: ToolServer, name: str, imported: ImportedTool, listed: Iterable[Mapping[str, Any]]) -> None:
    """Raises `StaleTool` unless the server lists the tool just as it was imported."""
    # All that would be this tool, so that a second one of its name is seen.
    alike = [each for each in listed if catalog_name(server.name, str(each.get("name", ""))) == name]
    found = read_listing(server.name, alike)
    now = found.tools.get(name)
    at = f"`{name}` of the MCP server `{server.name}`"
    if now is None:
        why = "could not be imported any more" if found.left_out else "is not there any more"
        raise StaleTool(f"{at} {why}")
    if now.digest != imported.digest:
        fields = ", ".join(f"`{each}`" for each in changed_fields(imported, now))
        raise StaleTool(f"{at} has changed since it was imported: {fields}")
