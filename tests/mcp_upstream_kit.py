import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import mcp_upstream
from app_server import running_app
from mcp_upstream import Upstream

from signoff.activities.mcp.worker_servers import WorkerServers
from signoff.keys.secrets import SecretProvider
from signoff.registry.mcp.imported_tool import read_listing
from signoff.registry.mcp.tool_server import ToolServer, run_on_server
from signoff.registry.tool import Tool
from signoff.temporal.embedded_server import free_port

LOOPBACK: Final = ("127.0.0.0/8",)
PATIENT: Final[dict[str, Any]] = {"timeout": 600.0}
"""A busy machine needs time to start a program."""


def imported(name: str, tools: list[dict[str, Any]], **fields: Any) -> ToolServer:
    return ToolServer(name, tools=read_listing(name, tools).tools, **fields)


def imported_tool(server: ToolServer, remote: str = "note", **fields: Any) -> Tool:
    name = f"mcp__{server.name}__{remote}"
    given: dict[str, Any] = {
        "name": name,
        "description": remote,
        "input_schema": server.tools[name].input_schema,
        "handler": run_on_server,
        "scope": "generalist",
        "settings": {"server": server.name},
        "settings_schema": {"type": "object"},
    }
    return Tool(**given | fields)


def by_streams(upstream: Upstream, name: str = "up", **fields: Any) -> ToolServer:
    command = (sys.executable, mcp_upstream.__file__, str(upstream.folder))
    return imported(name, upstream.tools, command=command, **PATIENT | fields)


@contextlib.asynccontextmanager
async def by_http(upstream: Upstream, wrap: Any = None, name: str = "up", **fields: Any) -> AsyncIterator[ToolServer]:
    app, port = upstream.server().streamable_http_app(), free_port()
    async with _lifespan(app), running_app(app if wrap is None else wrap(app), port):
        url = f"http://127.0.0.1:{port}/mcp"
        yield imported(name, upstream.tools, url=url, **{"allow_networks": LOOPBACK} | PATIENT | fields)


@contextlib.asynccontextmanager
async def _lifespan(app: Any) -> AsyncIterator[None]:
    """A separate task holds the lifespan: a fixture ends in another task than it started in."""
    begun, over = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with app.router.lifespan_context(app):
            begun.set()
            await over.wait()

    holding = asyncio.create_task(hold())
    await begun.wait()
    try:
        yield
    finally:
        over.set()
        await holding


@contextlib.asynccontextmanager
async def using(*servers: ToolServer, secrets: Mapping[str, str] | None = None) -> AsyncIterator[WorkerServers]:
    found = WorkerServers({each.name: each for each in servers}, SecretProvider(environment=secrets or {}))
    try:
        yield found
    finally:
        await found.close()
