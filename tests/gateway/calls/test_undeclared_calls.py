import uuid
from typing import Any

import pytest
from call_rig import CallRig, approval_of
from gateway_login import browser, words
from tables import table

from signoff.contracts.ids import TurnKey

SHELL: dict[str, Any] = {"agent": "roamer", "tool": "Shell", "args": {"command": "rm -rf build", "deep": {"a": [1]}}}


@pytest.mark.row("C14")
async def test_undeclared_call_is_approved_and_run_by_its_agent(agent: CallRig) -> None:
    call = (await agent.propose(**SHELL)).json()["id"]
    request = await agent.rig.request(approval_of(call))
    assert (request.tool, request.allow_remember) == ("Shell", False)
    assert request.card.note == "`roamer` runs the call itself, outside Signoff; this tool is not declared"
    assert {row.name: row.value for row in request.card.rows}["command"] == "rm -rf build"
    async with browser(agent.rig) as page:
        card = words((await page.get(f"/approvals/{approval_of(call)}")).text)
    assert "roamer runs the call itself, outside Signoff. This tool is not declared." in card
    assert (await agent.decide(call)).json()["status"] == "accepted"
    params = {"agent": "roamer"}
    permitted = await agent.show(call, wait=20, **params)
    assert (permitted["state"], permitted["args"]) == ("permitted", SHELL["args"])
    used = await agent.http.post(f"/v1/calls/{call}/use", params=params, json={})
    assert (used.status_code, used.json()["args"]) == (200, SHELL["args"])
    again = await agent.http.post(f"/v1/calls/{call}/use", params=params, json={})
    assert (again.status_code, again.json()["code"]) == (409, "used")
    ended = await agent.http.post(f"/v1/calls/{call}/outcome", params=params, json={"code": "ok", "result": "done"})
    assert (ended.json()["state"], ended.json()["result"]) == ("ended", "done")
    kinds = dict(await agent.record(call))
    assert kinds["execution"]["run_by"] == "roamer"
    await agent.rig.turns.replays(TurnKey(*call.split(".")))


async def test_approval_of_an_undeclared_call_does_not_cover_the_next(agent: CallRig) -> None:
    session = uuid.uuid4().hex
    first = (await agent.propose(session=session, **SHELL)).json()["id"]
    refused = await agent.decide(first, remember={"scope": "session"})
    assert refused.json()["code"] != "accepted"
    await agent.decide(first)
    assert (await agent.show(first, wait=20, agent="roamer"))["state"] == "permitted"
    second = (await agent.propose(session=session, use=True, **SHELL)).json()
    assert (second["id"] != first, second["state"]) == (True, "waiting")


@table(
    "fields",
    {"agent": "coder"},
    {"tool": "respond"},
    {"tool": "read_rest"},
    {"tool": "Refund"},
    {"tool": "a.b"},
    {"tool": "*"},
)
async def test_reserved_or_invalid_tool_name_is_denied(agent: CallRig, fields: dict[str, Any]) -> None:
    answer = await agent.propose(**(SHELL | fields))
    assert (answer.status_code, answer.json()["state"]) == (200, "denied"), answer.text
    assert "Unknown tool" in answer.json()["reason"]


async def test_declared_tool_keeps_its_own_rules(agent: CallRig) -> None:
    denied = await agent.propose(agent="roamer", euro=2_000)
    assert (denied.json()["state"], denied.json()["source"]) == ("denied", "policy")
    permitted = await agent.propose(agent="roamer", euro=20)
    assert permitted.json()["state"] == "permitted"
