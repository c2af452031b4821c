import asyncio
from typing import Any

import httpx2
import pytest
from call_rig import call_token
from gateway_login import bearer, token_of
from mcp_rig import MODERN, McpRig
from tables import table

_LIST: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
_INIT: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


async def test_missing_token_returns_401_with_resource_metadata(mcp: McpRig) -> None:
    answer = await mcp.post(_LIST, authorization="Bearer sgf_guessed")
    assert answer.status_code == 401
    address = answer.headers["www-authenticate"].partition('resource_metadata="')[2].partition('"')[0]
    async with httpx2.AsyncClient(timeout=60) as http:
        found = (await http.get(address)).json()
    assert found["resource"] == f"{mcp.url}/mcp/coder"
    assert found["scopes_supported"] == ["call"]


async def test_other_token_agent_or_site_is_refused(mcp: McpRig) -> None:
    person = await mcp.post(_LIST, **bearer(await token_of(mcp.gateway, "ana")))
    assert (person.status_code, "insufficient_scope" in person.headers["www-authenticate"]) == (403, True)
    other = await mcp.post(_LIST, **bearer(await call_token(mcp.gateway, "clerk")))
    assert (other.status_code, other.json()["code"]) == (403, "not_allowed")
    assert (await mcp.post(_LIST, origin="https://evil.example")).status_code == 403
    assert (await mcp.post(_LIST, host="evil.example")).status_code == 421


async def test_unusual_address_does_not_break_the_refusal(mcp: McpRig) -> None:
    answer = await mcp.post(_LIST, path="/mcp/%22%0D%0Ax%E2%82%AC", authorization="Bearer sgf_guessed")
    assert answer.status_code == 401


async def test_agent_of_several_people_must_name_one(mcp: McpRig) -> None:
    clerk = bearer(await call_token(mcp.gateway, "clerk"))
    for path, words in (("/mcp/clerk", "name the `user`"), ("/mcp/clerk?user=guest", "may not act for")):
        answer = await mcp.post(_LIST, path, **clerk)
        assert (answer.status_code, words in answer.text) == (200, True), answer.text
    answer = await mcp.post(_LIST, "/mcp/clerk?user=bo", **clerk)
    assert '"name":"pay"' in answer.text


@table(
    "body",
    b"",
    b"{",
    b"[]",
    b"[" * 50_000,
    b"null",
    b'"x"',
    b"\xff",
    b'{"jsonrpc":"2.0"}',
    b'{"jsonrpc":"2.0","id":1,"method":5}',
    b'{"jsonrpc":"2.0","id":{},"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":7}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"amount":1e999}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\ud800","arguments":{}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"to":"\\ud800"}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","_meta":{"claudecode/toolUseId":"\\n"}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"nothing/there","params":{}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}',
)
@table("version", "", "2025-11-25", MODERN, "1999-01-01")
async def test_garbage_is_a_protocol_error(mcp: McpRig, body: bytes, version: str) -> None:
    answer = await mcp.post(body, **({"mcp-protocol-version": version} if version else {}))
    assert answer.status_code < 500, answer.text
    assert answer.status_code == 202 or '"error"' in answer.text or '"isError":true' in answer.text, answer.text


async def test_session_is_started_and_recognized(mcp: McpRig) -> None:
    begun = await mcp.post(_INIT)
    session = begun.headers["mcp-session-id"]
    known = await mcp.post(_LIST, **{"mcp-session-id": session})
    assert (known.status_code, '"name":"pay"' in known.text) == (200, True)
    unknown = await mcp.post(_LIST, **{"mcp-session-id": "made-up"})
    clerk = bearer(await call_token(mcp.gateway, "clerk"))
    foreign = await mcp.post(_LIST, "/mcp/clerk?user=bo", **clerk, **{"mcp-session-id": session})
    assert (unknown.status_code, foreign.status_code) == (404, 404)


async def test_cancelled_request_is_no_longer_held(mcp: McpRig) -> None:
    session = {"mcp-session-id": (await mcp.post(_INIT)).headers["mcp-session-id"]}
    call = {"name": "pay", "arguments": {"amount": 931}}
    held = asyncio.create_task(mcp.post({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call}, **session))
    await mcp.asked("Pay 931")
    while not mcp.gateway.app.state.held_requests.names():
        await asyncio.sleep(0.01)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    assert (await mcp.post(cancel, **session)).status_code == 202
    assert "Waiting for approval" in (await held).text


@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
async def test_waiting_call_is_answered_at_once_without_a_free_stream(
    mcp: McpRig, monkeypatch: pytest.MonkeyPatch, era: str
) -> None:
    """As a result: a modern client would start its next round at once."""
    monkeypatch.setattr("signoff.gateway.auth.streams.STREAMS_OF_ONE", 0)
    monkeypatch.setattr("signoff.gateway.auth.streams._PAUSE_SECONDS", 600)
    call: dict[str, Any] = {"name": "pay", "arguments": {"amount": 932 if era == MODERN else 933}}
    headers = {"mcp-protocol-version": era}
    if era == MODERN:
        names = {"protocolVersion": MODERN, "clientCapabilities": {}}
        call["_meta"] = {f"io.modelcontextprotocol/{name}": value for name, value in names.items()}
        headers |= {"mcp-method": "tools/call", "mcp-name": "pay"}
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call}
    answer, again = await mcp.post(message, **headers), await mcp.post(message, **headers)
    assert (answer.status_code, answer.headers["retry-after"]) == (200, "600")
    assert "Waiting for approval" in answer.text
    assert "streams already" in again.text
    free = await mcp.post(_LIST)
    assert (free.status_code, "retry-after" in free.headers) == (200, False)


async def test_large_bodies_and_other_methods_are_refused(mcp: McpRig) -> None:
    headers = {"content-type": "application/json", **bearer(mcp.secret)}
    answer = await mcp.gateway.http.post("/mcp/coder", content=b"y" * 2_000_000, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    async with httpx2.AsyncClient(headers=bearer(mcp.secret), timeout=60) as http:
        for method in ("GET", "DELETE"):
            assert (await http.request(method, f"{mcp.url}/mcp/coder")).status_code == 405


async def test_agents_address_with_a_slash_added_is_the_same(mcp: McpRig) -> None:
    clerk = bearer(await call_token(mcp.gateway, "clerk"))
    answer = await mcp.post(_LIST, "/mcp/clerk/?user=bo", **clerk)
    assert '"name":"pay"' in answer.text
    stranger = await mcp.post(_LIST, "/mcp/coder/", authorization="Bearer sgf_guessed")
    address = stranger.headers["www-authenticate"].partition('resource_metadata="')[2].partition('"')[0]
    async with httpx2.AsyncClient(timeout=60) as http:
        shown = [await http.get(each) for each in (address, f"{address}/")]
    assert [each.json()["resource"] for each in shown] == [f"{mcp.url}/mcp/coder"] * 2
