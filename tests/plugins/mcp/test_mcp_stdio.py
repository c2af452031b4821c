import asyncio
import io
import json
import sys
from pathlib import Path

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from mcp_rig import ERAS, McpRig, text_of_result

from signoff.cli.http.mcp_stdio import StdioForwarder
from signoff.temporal.embedded_server import free_port

_AMOUNTS = iter(range(950, 999))


def server(mcp: McpRig, folder: Path, *options: str) -> StdioServerParameters:
    """A directory without a project, behind a proxy unaware of localhost."""
    words = ["-c", "from signoff.cli.main import main; main()", "mcp-stdio", "coder", "--url", mcp.url, *options]
    env = {"SIGNOFF_TOKEN": mcp.secret, "HTTP_PROXY": f"http://127.0.0.1:{free_port()}"}
    return StdioServerParameters(command=sys.executable, args=words, env=env, cwd=folder)


@pytest.mark.parametrize("era", ERAS)
async def test_host_over_stdio_lists_calls_and_waits(mcp: McpRig, tmp_path: Path, era: str) -> None:
    amount = next(_AMOUNTS)
    async with Client(stdio_client(server(mcp, tmp_path)), mode=era) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["broken", "look", "move", "pay"]
        held = asyncio.create_task(client.call_tool("pay", {"amount": amount}))
        approval = await mcp.asked(f"Pay {amount}")
        # In parallel to the held one.
        assert text_of_result(await client.call_tool("pay", {"amount": 20})) == "paid"
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("nothing", {})
        await mcp.decide(approval)
        assert text_of_result(await held) == "paid"


async def test_person_that_may_not_be_named_is_an_error(mcp: McpRig, tmp_path: Path) -> None:
    async with Client(stdio_client(server(mcp, tmp_path, "--user", "ana")), mode="legacy") as client:
        with pytest.raises(MCPError, match="may not act for"):
            await client.list_tools()


async def test_each_request_without_a_gateway_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    lines = ('{"jsonrpc":"2.0","id":1,"method":"initialize"}', '{"jsonrpc":"2.0","method":"x"}', "junk", "")
    stdin = io.TextIOWrapper(io.BytesIO("\n".join(lines).encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    async with httpx2.AsyncClient(timeout=60) as http:
        await StdioForwarder(http, f"http://127.0.0.1:{port}/mcp/coder").run()
    (answer,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (answer["id"], answer["error"]["code"]) == (1, -32603)
    assert answer["error"]["message"] == f"no gateway answers at http://127.0.0.1:{port}"
