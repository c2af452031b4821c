import asyncio
import json
import uuid
from typing import Any

import pytest
from call_rig import call_token, production_gateway, refusals
from gateway_login import bearer
from gateway_rig import turn_of
from mcp.shared.exceptions import MCPError
from mcp_rig import ERAS, LEGACY, MODERN, McpRig, text_of_result
from mcp_types import InputRequiredResult

from signoff.engine.call_client import CallClient
from signoff.plugins.mcp.protocol_server import TASKS, TOOL_USE_ID

MODERN_META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}},
}
_AMOUNTS = iter(range(100, 900))
_AWAY_SECONDS = 3.0
_SIGNALED = "WORKFLOW_EXECUTION_SIGNALED"


def amount() -> int:
    return next(_AMOUNTS)


@pytest.mark.parametrize("era", ERAS)
async def test_agent_lists_the_tools_that_signoff_runs(mcp: McpRig, era: str) -> None:
    async with mcp.client(era) as client:
        tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == ["broken", "look", "move", "pay"]
    hints = {tool.name: (tool.annotations.read_only_hint, tool.annotations.destructive_hint) for tool in tools}  # type: ignore[union-attr]
    assert hints == {"broken": (False, True), "look": (True, False), "move": (False, True), "pay": (False, True)}


@pytest.mark.parametrize("era", ERAS)
async def test_call_settled_by_rule_is_answered_at_once(mcp: McpRig, era: str) -> None:
    async with mcp.client(era) as client:
        paid = await client.call_tool("pay", {"amount": 20})
        denied = await client.call_tool("pay", {"amount": 2_000})
        wrong = await client.call_tool("pay", {"amount": "much"})
        broken = await client.call_tool("broken", {"amount": 1})
    assert (paid.is_error, text_of_result(paid)) == (False, "paid")
    assert (denied.is_error, text_of_result(denied).startswith("Denied (policy)")) == (True, True)
    assert (wrong.is_error, "amount" in text_of_result(wrong)) == (True, True)
    assert (broken.is_error, bool(text_of_result(broken))) == (True, True)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", ["refund", "nothing"])
async def test_unlisted_tool_is_unknown(mcp: McpRig, era: str, name: str) -> None:
    async with mcp.client(era) as client:
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool(name, {"order": "A7", "euro": 20})


async def test_refused_mcp_call_is_recorded(mcp: McpRig) -> None:
    gateway, secret = production_gateway(mcp.gateway), await call_token(mcp.gateway, "coder")
    state = MODERN_META | {"io.modelcontextprotocol/clientCapabilities": {}}
    pay = {"name": "pay", "arguments": {"amount": 20}}
    tried = [
        ("", "tools/call", {"name": "p\x00", "arguments": {}}, "unknown", "p?"),
        ("?user=ana", "tools/call", pay, "not_allowed", "pay"),
        ("", "tools/call", pay | {"requestState": "made-up", "_meta": state}, "unproved", "pay"),
        ("", "tasks/get", {"taskId": f"main.{uuid.uuid4()}.x", "_meta": MODERN_META}, "unknown", ""),
    ]
    for query, method, params, code, tool in tried:
        before = await refusals(gateway, "actor:coder", tool)
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if "_meta" in params:
            named = str(params.get("taskId", params.get("name")))
            headers |= {"mcp-protocol-version": MODERN, "mcp-method": method, "mcp-name": named}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        answer = await gateway.http.post(f"/mcp/coder{query}", content=body, headers=headers | bearer(secret))
        assert '"error"' in answer.text, answer.text
        found = (await refusals(gateway, "actor:coder", tool))[len(before) :]
        assert [(each["code"], each["where"]) for each in found] == [(code, "POST /mcp/coder")], answer.text


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.row("C16")
async def test_call_is_held_until_approvers_decide(mcp: McpRig, era: str) -> None:
    euro = amount()
    async with mcp.client(era) as client:
        held = asyncio.create_task(client.call_tool("pay", {"amount": euro}))
        await mcp.decide(await mcp.asked(f"Pay {euro}"))
        assert text_of_result(await held) == "paid"


@pytest.mark.parametrize("era", ERAS)
async def test_denial_or_edit_reaches_the_client(mcp: McpRig, era: str) -> None:
    no, other = amount(), amount()
    async with mcp.client(era) as client:
        denied = asyncio.create_task(client.call_tool("pay", {"amount": no}))
        await mcp.decide(await mcp.asked(f"Pay {no}"), "denied", reason="too much")
        changed = asyncio.create_task(client.call_tool("pay", {"amount": other}))
        await mcp.decide(await mcp.asked(f"Pay {other}"), edited_args={"amount": 51})
        first, second = await denied, await changed
    assert (first.is_error, "too much" in text_of_result(first)) == (True, True)
    note, result = [each.text for each in second.content]  # type: ignore[union-attr]
    assert ("51" in note, result) == (True, "paid")
    assert any(row[1] == {"amount": 51} for row in mcp.gateway.ledger.rows)


async def test_client_gets_progress_while_its_call_waits(mcp: McpRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signoff.plugins.mcp.tool_calls.PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr("signoff.plugins.mcp.protocol_server.HOLD_SECONDS", 0.0)
    euro, told = amount(), asyncio.Event()
    words: list[Any] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        words.append((progress, message))
        if len(words) > 1:
            told.set()

    async with mcp.client(LEGACY) as client:
        held = asyncio.create_task(client.call_tool("pay", {"amount": euro}, progress_callback=hear))
        await told.wait()
        await mcp.decide(await mcp.asked(f"Pay {euro}"))
        assert text_of_result(await held) == "paid"
    assert words[0][0] < words[1][0]
    assert "Waiting for approval" in words[1][1]


async def test_expired_hold_explains_how_to_get_the_result(mcp: McpRig, monkeypatch: pytest.MonkeyPatch) -> None:
    euro = amount()
    async with mcp.client(LEGACY) as client:
        with monkeypatch.context() as patched:
            patched.setattr("signoff.plugins.mcp.protocol_server.HOLD_SECONDS", 0.0)
            waits = await client.call_tool("pay", {"amount": euro})
    approval = await mcp.asked(f"Pay {euro}")
    assert waits.is_error
    assert "Call the same tool with the same arguments later" in text_of_result(waits)
    await mcp.decide(approval)
    await mcp.permitted(approval)
    assert not any(row[1].get("amount") == euro for row in mcp.gateway.ledger.rows)
    async with mcp.client(LEGACY) as client:
        assert text_of_result(await client.call_tool("pay", {"amount": euro})) == "paid"
    assert sum(row[1].get("amount") == euro for row in mcp.gateway.ledger.rows) == 1


async def test_modern_client_returns_with_its_request_state(mcp: McpRig, monkeypatch: pytest.MonkeyPatch) -> None:
    euro = amount()
    async with mcp.client(MODERN) as client:
        with monkeypatch.context() as patched:
            patched.setattr("signoff.plugins.mcp.protocol_server.HOLD_SECONDS", 0.0)
            first = await client.session.call_tool("pay", {"amount": euro}, allow_input_required=True)
        assert isinstance(first, InputRequiredResult)
        assert first.input_requests is None
        for state in (first.request_state, "made-up"):
            with pytest.raises(MCPError, match="Invalid or expired requestState"):
                await client.session.call_tool("pay", {"amount": 20}, request_state=state, allow_input_required=True)
        await mcp.decide(await mcp.asked(f"Pay {euro}"))
        second = await client.session.call_tool(
            "pay", {"amount": euro}, request_state=first.request_state, allow_input_required=True
        )
    assert text_of_result(second) == "paid"


async def test_rounds_end_before_a_client_gives_up(mcp: McpRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signoff.plugins.mcp.protocol_server.HOLD_SECONDS", 0.0)
    async with mcp.client(MODERN) as client:
        result = await client.call_tool("pay", {"amount": amount()})
    assert (result.is_error, "Call the same tool with the same arguments later" in text_of_result(result)) == (
        True,
        True,
    )


@pytest.mark.row("C17")
async def test_client_with_tasks_gets_one_while_approvers_decide(mcp: McpRig) -> None:
    euro = amount()
    at_once = await mcp.ask_modern("tools/call", name="pay", arguments={"amount": 20})
    assert (at_once["result"]["resultType"], "taskId" in at_once["result"]) == ("complete", False)
    task = (await mcp.ask_modern("tools/call", name="pay", arguments={"amount": euro}))["result"]
    assert (task["resultType"], task["status"], task["pollIntervalMs"]) == ("task", "working", 5_000)
    assert task["statusMessage"].endswith(" waits for approval")
    same = (await mcp.ask_modern("tasks/get", taskId=task["taskId"]))["result"]
    assert (same["resultType"], same["status"], same["createdAt"]) == ("complete", "working", task["createdAt"])
    assert (await mcp.ask_modern("tasks/update", taskId=task["taskId"], inputResponses={}))["result"]
    await mcp.decide(await mcp.asked(f"Pay {euro}"))
    over = await mcp.settled_task(task["taskId"])
    assert (over["status"], over["result"]["content"][0]["text"]) == ("completed", "paid")


async def test_task_is_withdrawn_by_its_client(mcp: McpRig) -> None:
    task = (await mcp.ask_modern("tools/call", name="pay", arguments={"amount": amount()}))["result"]
    for _ in range(2):
        assert (await mcp.ask_modern("tasks/cancel", taskId=task["taskId"]))["result"]["resultType"] == "complete"
    assert (await mcp.settled_task(task["taskId"]))["status"] == "cancelled"


async def test_tasks_need_their_agent_and_a_client_with_the_extension(mcp: McpRig) -> None:
    for method in ("tasks/get", "tasks/cancel", "tasks/update"):
        missing = await mcp.ask_modern(method, taskId="main.a.b", inputResponses={})
        assert (missing["error"]["code"], "`main.a.b`" in missing["error"]["message"]) == (-32602, True), missing
        refused = await mcp.ask_modern(method, extensions={}, taskId="main.a.b", inputResponses={})
        assert refused["error"]["code"] == -32021, refused


async def test_named_calls_are_joined_and_repeated(mcp: McpRig, monkeypatch: pytest.MonkeyPatch) -> None:
    euro = amount()
    first, second = ({TOOL_USE_ID: f"toolu_{euro}_{number}".ljust(30, "x")} for number in range(2))
    async with mcp.client(LEGACY) as client:
        with monkeypatch.context() as patched:
            patched.setattr("signoff.plugins.mcp.protocol_server.HOLD_SECONDS", 0.0)
            await client.call_tool("pay", {"amount": euro}, meta=first)  # type: ignore[arg-type]
        await mcp.decide(await mcp.asked(f"Pay {euro}"))
        for _ in range(2):
            result = await client.call_tool("pay", {"amount": euro}, meta=second)  # type: ignore[arg-type]
            assert text_of_result(result) == "paid"
    assert sum(row[1].get("amount") == euro for row in mcp.gateway.ledger.rows) == 1


@pytest.mark.parametrize("ident", ["call_0", "toolu_" + "x" * 24])
async def test_repeated_id_in_another_session_is_a_new_call(mcp: McpRig, ident: str) -> None:
    euro = amount()
    for _ in range(2):
        async with mcp.client(LEGACY) as client:
            held = asyncio.create_task(client.call_tool("pay", {"amount": euro}, meta={TOOL_USE_ID: ident}))  # type: ignore[arg-type]
            await mcp.decide(await mcp.asked(f"Pay {euro}"))
            assert text_of_result(await held) == "paid"
    assert sum(row[1].get("amount") == euro for row in mcp.gateway.ledger.rows) == 2


@pytest.mark.parametrize("era", ERAS)
async def test_call_of_an_aborted_request_is_withdrawn(mcp: McpRig, monkeypatch: pytest.MonkeyPatch, era: str) -> None:
    monkeypatch.setattr("signoff.plugins.mcp.tool_calls.AWAY_SECONDS", 0.1)
    euro = amount()
    async with mcp.client(era) as client:
        held = asyncio.create_task(client.call_tool("pay", {"amount": euro}))
        approval = await mcp.asked(f"Pay {euro}")
        while not mcp.gateway.app.state.held_requests.is_awaited(".".join(turn_of(approval))):
            await asyncio.sleep(0.01)
        held.cancel()
        await asyncio.wait([held])
    while (await mcp.gateway.request(approval)).state == "pending":
        await asyncio.sleep(0.05)
    assert (await mcp.gateway.request(approval)).state == "cancelled"


async def test_awaited_call_is_not_withdrawn_after_its_timeout(mcp: McpRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first withdrawal time passes, and approvers may still decide."""
    monkeypatch.setattr("signoff.plugins.mcp.protocol_server.HOLD_SECONDS", 0.0)
    euro, turns = amount(), CallClient(mcp.gateway.deps.client)
    async with mcp.client(LEGACY) as client:
        await client.call_tool("pay", {"amount": euro})
        approval = await mcp.asked(f"Pay {euro}")
        turn = turn_of(approval)
        await turns.attend(turn, within=_AWAY_SECONDS)
        await turns.attend(turn)
        while not (await mcp.gateway.turns.events(turn)).count("TIMER_FIRED"):
            await asyncio.sleep(0.1)
        assert (await mcp.gateway.request(approval)).state == "pending"
        before = (await mcp.gateway.turns.events(turn)).count(_SIGNALED)
        await client.call_tool("pay", {"amount": euro})
    assert (before, (await mcp.gateway.turns.events(turn)).count(_SIGNALED)) == (2, 3)
