import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from call_rig import CallRig, call_token, production_gateway, refusals
from gateway_login import bearer, locked_rig, token_of
from tables import table

from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.limits import REPORT_BODY_BYTES
from signoff.gateway.calls import own_calls

DEEP: Any = json.loads("[" * 100 + "]" * 100)


async def test_only_an_agents_token_admits_a_hook(hooks: Callable[..., Any]) -> None:
    session = hooks()
    body = session.body("PreToolUse", "ls", tool_use_id="toolu_1")
    locked = locked_rig(session.agent.rig)
    async with locked.http as http:
        path = "/v1/hooks/claude-code"
        assert (await http.post(path, json=body)).status_code == 401
        person = await http.post(path, json=body, headers=bearer(await token_of(session.agent.rig, "ana")))
        assert (person.status_code, person.json()["code"]) == (403, "scope")
        own = bearer(await call_token(session.agent.rig, "coder"))
        allowed = await http.post(path, json=body, headers=own)
        assert allowed.json()["hookSpecificOutput"]["permissionDecision"] == "allow"
        for query, words in (({"agent": "clerk"}, "this token is of `coder`"), ({"user": "ana"}, "may not act for")):
            refused = await http.post(path, json=body, headers=own, params=query)
            assert (refused.status_code, refused.json()["hookSpecificOutput"]["permissionDecision"]) == (200, "deny")
            assert words in refused.json()["hookSpecificOutput"]["permissionDecisionReason"]


async def test_refused_hook_is_recorded(hooks: Callable[..., Any]) -> None:
    session = hooks()
    rig, own = production_gateway(session.agent.rig), bearer(await call_token(session.agent.rig, "coder"))
    known = session.body("PreToolUse", "ls", tool_use_id="toolu_refused")
    tried = [
        ("not_allowed", known, {"user": "ana"}),
        ("not_allowed", known, {"agent": "clerk"}),
    ]
    path = "/v1/hooks/claude-code"
    assert (await rig.http.post(path, json=known, headers=own)).status_code == 200
    before = await refusals(rig, "actor:coder", "Bash")
    for _, body, query in tried:
        answer = await rig.http.post(path, json=body, headers=own, params=query)
        assert answer.json()["hookSpecificOutput"]["permissionDecision"] == "deny"
    found = (await refusals(rig, "actor:coder", "Bash"))[len(before) :]
    assert [(each["code"], each["where"]) for each in found] == [(code, f"POST {path}") for code, _, _ in tried]


@pytest.mark.parametrize("host", ["claude-code", "codex"])
@pytest.mark.parametrize(
    "fields",
    [
        {"tool_input": None},
        {"tool_input": "rm -rf /"},
        {"tool_input": {"command": "x" * 70_000}},
        {"tool_input": {"command": "ls", "deep": DEEP}},
        {"tool_input": {"command": "ls", "number": 2**60}},
        {"tool_name": ""},
    ],
)
async def test_unreadable_call_is_denied_in_the_hosts_shape(
    hooks: Callable[..., Any], host: str, fields: dict[str, Any]
) -> None:
    session = hooks(host)
    answer = await session.send(session.body("PreToolUse", **fields))
    assert answer.status_code == 200, answer.text
    assert answer.json()["hookSpecificOutput"]["permissionDecision"] == "deny"


@table("content", b"", b"{", b"[]", b'"x"', b"{}", b'{"hook_event_name": 7}', b"\xff")
async def test_garbage_is_refused_with_an_error(agent: CallRig, content: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = await agent.http.post("/v1/hooks/codex?agent=coder", content=content, headers=headers)
    assert answer.status_code in (400, 422)
    assert set(answer.json()) == {"code", "message"}


async def test_half_of_a_surrogate_pair_is_refused(agent: CallRig) -> None:
    headers = {"content-type": "application/json"}
    for content in (
        b'{"hook_event_name": "PreToolUse", "tool_name": "\\ud800", "tool_input": {}}',
        b'{"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "\\ud800"}}',
        b'{"hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": {"command": "\\ud800"}}',
    ):
        answer = await agent.http.post("/v1/hooks/codex?agent=coder", content=content, headers=headers)
        output = answer.json().get("hookSpecificOutput", {})
        assert (answer.status_code, output.get("permissionDecision", "")) in ((422, ""), (200, "deny"), (200, ""))


async def test_report_up_to_its_size_limit_is_accepted(hooks: Callable[..., Any]) -> None:
    session = hooks()
    empty = len(json.dumps(session.body("PostToolUse", "ls", tool_response="")))
    for more, status in ((0, 200), (1, 413)):
        report = session.body("PostToolUse", "ls", tool_response="x" * (REPORT_BODY_BYTES - empty + more))
        content = json.dumps(report)
        headers = {"content-type": "application/json"}
        answer = await session.agent.http.post("/v1/hooks/codex?agent=coder", content=content, headers=headers)
        assert (len(content), answer.status_code) == (REPORT_BODY_BYTES + more, status)


async def test_other_events_get_an_empty_answer(hooks: Callable[..., Any]) -> None:
    session = hooks()
    assert await session.answer("PreToolUse", hook_event_name="SessionStart") == {}


@pytest.mark.parametrize("query", [{"hold": -1}, {"hold": 3_601}, {"hold": "x"}, {"defer": "later"}])
async def test_malformed_query_is_refused(hooks: Callable[..., Any], query: dict[str, Any]) -> None:
    session = hooks()
    assert (await session.send(session.body("PreToolUse", "ls"), **query)).status_code == 422


async def test_unreachable_server_denies_the_call(hooks: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def propose(*_: Any, **__: Any) -> None:
        raise ServerUnavailable("no Temporal server answers")

    session = hooks()
    monkeypatch.setattr(own_calls, "propose", propose)
    monkeypatch.setattr(own_calls, "find_call", propose)
    denied = await session.decision("ls", uuid.uuid4().hex)
    assert denied == {
        "permissionDecision": "deny",
        "permissionDecisionReason": "Not run: no Temporal server answers",
    }
    assert (await session.send(session.body("PostToolUse", "ls"))).status_code == 503
