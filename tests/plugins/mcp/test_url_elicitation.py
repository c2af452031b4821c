import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from call_rig import call_token
from gateway_login import browser, hidden, sign_in, token_of
from mcp.client.client import Client
from mcp_rig import ERAS, LEGACY, McpRig, text_of_result
from mcp_types import ElicitCompleteNotification, ElicitResult
from tables import table

from signoff.plugins.mcp.url_elicitation import opens_urls

_AMOUNTS = iter(range(2_000, 2_100))


class Visitor:
    def __init__(self, action: str = "accept") -> None:
        self.pages: asyncio.Queue[Any] = asyncio.Queue()
        self.messages: list[Any] = []
        self._action = action

    async def open(self, context: Any, params: Any) -> ElicitResult:
        await self.pages.put(params)
        return ElicitResult(action=self._action)  # type: ignore[arg-type]

    async def hear(self, message: Any) -> None:
        self.messages.append(message)


@asynccontextmanager
async def client_of(mcp: McpRig, era: str, user: str, visitor: Visitor) -> AsyncIterator[Client]:
    secret = await call_token(mcp.gateway, "clerk")
    fields = {"elicitation_callback": visitor.open, "message_handler": visitor.hear}
    async with mcp.client(era, f"/mcp/clerk?user={user}", secret=secret, **fields) as client:
        yield client


@pytest.mark.parametrize("action", ["accept", "decline"])
@pytest.mark.parametrize("era", ERAS)
async def test_approver_is_shown_the_page_and_decides_only_there(mcp: McpRig, era: str, action: str) -> None:
    visitor, amount = Visitor(action), next(_AMOUNTS)
    async with client_of(mcp, era, "ana", visitor) as client:
        held = asyncio.create_task(client.call_tool("move", {"amount": amount}))
        page = await visitor.pages.get()
        approval = await mcp.asked(f"Move {amount}")
        assert (page.mode, page.url) == ("url", f"{mcp.url}/approvals/{approval}")
        assert page.message.startswith("move waits for your approval, ")
        # The client has answered, so its call is held again.
        while not mcp.gateway.app.state.held_requests.is_awaited(approval.removesuffix(".c1.1")):
            await asyncio.sleep(0.01)
        assert (await mcp.gateway.request(approval)).state == "pending"
        async with browser(mcp.gateway) as window:
            await sign_in(window, await token_of(mcp.gateway, "ana"))
            path = f"/approvals/{approval}"
            form = hidden((await window.get(path)).text, f"{path}/decide")
            await window.post(f"{path}/decide", data={**form, "verdict": "approved"})
        assert text_of_result(await held) == "paid"
        assert visitor.pages.empty()
    over = [each.params.elicitation_id for each in visitor.messages if isinstance(each, ElicitCompleteNotification)]
    assert over == ([page.elicitation_id] if era == LEGACY else [])


@pytest.mark.parametrize("era", ERAS)
async def test_person_without_authority_is_shown_no_page(
    mcp: McpRig, monkeypatch: pytest.MonkeyPatch, era: str
) -> None:
    monkeypatch.setattr("signoff.plugins.mcp.protocol_server.HOLD_SECONDS", 0.0)
    visitor = Visitor()
    async with client_of(mcp, era, "bo", visitor) as client:
        waits = await client.call_tool("move", {"amount": next(_AMOUNTS)})
    assert (waits.is_error, visitor.pages.empty()) == (True, True)


async def test_elicitation_answer_alone_decides_nothing(mcp: McpRig) -> None:
    begun = await mcp.post(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"elicitation": {"url": {}}},
                "clientInfo": {"name": "x", "version": "1"},
            },
        }
    )
    session = {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    answer = {"jsonrpc": "2.0", "id": "signoff-x", "result": {"action": "accept"}}
    taken = await mcp.post(answer, **session)
    assert (taken.status_code, taken.content) == (202, b"")


@table(
    ("capabilities", "opens"),
    ({"elicitation": {"url": {}}}, True),
    ({"elicitation": {"form": {}, "url": {}}}, True),
    # An empty one of 2025-11-25 means forms.
    ({"elicitation": {}}, False),
    ({"elicitation": {"url": True}}, False),
    ({"elicitation": []}, False),
    ({}, False),
    (None, False),
    ("url", False),
)
def test_client_capability_tells_whether_it_opens_pages(capabilities: Any, opens: bool) -> None:
    assert opens_urls(capabilities) == opens
