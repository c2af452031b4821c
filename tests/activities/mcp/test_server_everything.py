import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp_upstream_kit import LOOPBACK, PATIENT, using
from polling import pauses

from signoff.activities.mcp.worker_servers import WorkerServers
from signoff.contracts.errors import Unavailable
from signoff.registry.mcp.import_file import read_import, write_import
from signoff.registry.mcp.tool_server import ToolServer
from signoff.registry.tool_result import ToolFailure, ToolResult
from signoff.temporal.embedded_server import free_port

SERVER = Path(__file__).parents[2] / "mcp_packages/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
pytestmark = pytest.mark.mcp_packages


@contextlib.asynccontextmanager
async def over_http() -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        "node", str(SERVER), "streamableHttp", env={**os.environ, "PORT": str(port)}, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def imported_from(server: ToolServer, folder: Path) -> AsyncIterator[WorkerServers]:
    path = folder / "all.yaml"
    async with using(server) as asked:
        for pause in pauses():
            with contextlib.suppress(Unavailable):
                listing = await asked.list_tools("all")
                break
            await asyncio.sleep(pause)
    assert listing.left_out == {}
    write_import(path, "all", listing.tools.values())
    _, tools = read_import(path, "all")
    given = {"url": server.url, "command": server.command, "allow_networks": server.allow_networks, **PATIENT}
    async with using(ToolServer("all", tools=tools, **given)) as servers:
        yield servers


async def call_all(servers: WorkerServers) -> None:
    assert await servers.problems() == []
    assert await servers.run("all", "mcp__all__echo", {"message": "hi"}) == ToolResult("Echo: hi")
    assert await servers.run("all", "mcp__all__get-sum", {"a": 1, "b": 2.5}) == ToolResult(
        "The sum of 1 and 2.5 is 3.5."
    )
    weather = await servers.run("all", "mcp__all__get-structured-content", {"location": "New York"})
    assert isinstance(weather, ToolResult)
    assert weather.structured["conditions"] == "Cloudy"
    image = await servers.run("all", "mcp__all__get-tiny-image", {})
    assert isinstance(image, ToolResult)
    assert "[an image, image/png, " in image.value
    wrong = await servers.run("all", "mcp__all__get-sum", {"a": "x"})
    assert isinstance(wrong, ToolFailure)
    assert "Invalid arguments" in wrong.message


async def test_reference_server_tools_are_imported_and_run_over_stdio(tmp_path: Path) -> None:
    """The server cannot make requests to its caller: such tools are not imported."""
    async with imported_from(ToolServer("all", command=("node", str(SERVER), "stdio"), **PATIENT), tmp_path) as servers:
        await call_all(servers)
        listing = await servers.list_tools("all")
    assert not [name for name in listing.tools if "sampling" in name or "elicitation" in name or "roots" in name]


async def test_reference_server_tools_run_over_http_until_the_server_stops(tmp_path: Path) -> None:
    async with over_http() as (url, process):
        server = ToolServer("all", url=url, allow_networks=LOOPBACK, **PATIENT)
        async with imported_from(server, tmp_path) as servers:
            await call_all(servers)
            process.kill()
            await process.wait()
            away = await servers.run("all", "mcp__all__echo", {"message": "hi"})
    assert isinstance(away, ToolFailure)
    assert away.code == "not_available"
