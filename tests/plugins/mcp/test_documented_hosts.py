import asyncio
import json
import tomllib
from string import Template

import httpx2
import pytest
from documents import ROOT, blocks_below
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_rig import LEGACY, McpRig, text_of_result

PAGE = ROOT / "docs" / "external-calls.md"


def claude_code(token: str) -> tuple[str, str]:
    [text] = blocks_below(PAGE, "Claude Code, by MCP")
    server = json.loads(text)["mcpServers"]["signoff"]
    assert server["type"] == "http"
    return server["url"], Template(server["headers"]["Authorization"]).substitute(SIGNOFF_TOKEN=token)


def codex(token: str) -> tuple[str, str]:
    _, text = blocks_below(PAGE, "Codex")
    server = tomllib.loads(text)["mcp_servers"]["signoff"]
    assert server["bearer_token_env_var"] == "SIGNOFF_TOKEN"
    return server["url"], f"Bearer {token}"


@pytest.mark.parametrize(("read", "amount"), [(claude_code, 941), (codex, 942)])
async def test_documented_host_settings_reach_an_approval(mcp: McpRig, read: type, amount: int) -> None:
    address, header = read(mcp.secret)
    address = address.replace("http://127.0.0.1:8300", mcp.url)
    async with httpx2.AsyncClient(headers={"authorization": header}, timeout=60) as http:
        transport = streamable_http_client(address, http_client=http)
        async with Client(transport, mode=LEGACY) as client:
            held = asyncio.create_task(client.call_tool("pay", {"amount": amount}))
            await mcp.decide(await mcp.asked(f"Pay {amount}"))
            assert text_of_result(await held) == "paid"
