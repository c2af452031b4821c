import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from app_server import running_app
from call_rig import second_gateway
from polling import pauses

from signoff.calls.agent_calls import MOVING, CallHandle
from signoff.contracts.limits import MIB
from signoff.gateway.calls.call_reader import read_call
from signoff.gateway.calls.own_calls import OwnCall, OwnCalls
from signoff.plugins.hooks.plugin import HookAnswer, HookBody, HookCalls
from signoff.temporal.embedded_server import free_port

ALLOWED = {"permissionDecision": "allow"}


class Held:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        self._left = number
        self._all = asyncio.Event()
        wait, held = OwnCalls.wait, self

        async def wait_and_tell(self: OwnCalls, call: CallHandle, seconds: float) -> OwnCall:
            if seconds:
                held._left -= 1
            if held._left == 0:
                held._all.set()
            return await wait(self, call, seconds)

        monkeypatch.setattr(OwnCalls, "wait", wait_and_tell)

    async def all(self) -> None:
        await self._all.wait()


async def test_call_approved_by_rule_runs_and_is_reported(hooks: Callable[..., Any]) -> None:
    session = hooks()
    assert [await session.decision("ls", "toolu_1") for _ in range(2)] == [ALLOWED] * 2
    for _ in range(2):
        assert await session.answer("PostToolUse", "ls", tool_use_id="toolu_1") == {}
    assert await session.decision("ls", "toolu_2") == ALLOWED


async def test_id_reused_after_its_report_is_a_new_call(hooks: Callable[..., Any]) -> None:
    session = hooks()
    for _ in range(2):
        asked = await session.decision("rm -rf build", "call_0", hold=0)
        assert "waiting for approval" in asked["permissionDecisionReason"]
        await session.agent.decide(await session.waiting())
        assert await session.decision("rm -rf build", "call_0") == ALLOWED
        assert await session.answer("PostToolUse", "rm -rf build", tool_use_id="call_0") == {}


async def test_rule_denies_a_call(hooks: Callable[..., Any]) -> None:
    denied = await hooks().decision("sudo reboot", "toolu_1")
    assert denied == {
        "permissionDecision": "deny",
        "permissionDecisionReason": "Denied: `deny_if` is true, so the call is denied",
    }


async def test_undeclared_tool_is_denied(hooks: Callable[..., Any]) -> None:
    session = hooks()
    for name, words in (("WebFetch", "Unknown tool: WebFetch"), ("x" * 65, "`tool`"), ("a.b/c", "Unknown tool")):
        answer = await session.answer("PreToolUse", "ls", tool_name=name, tool_use_id=name[:9])
        assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"
        assert words in answer["hookSpecificOutput"]["permissionDecisionReason"]


async def test_undeclared_tool_asks_approvers_if_its_agent_allows(hooks: Callable[..., Any]) -> None:
    session = hooks()
    body = session.body("PreToolUse", tool_name="WebFetch", tool_input={"url": "https://example.com"})
    await session.send(body, agent="roamer")
    call = await session.waiting()
    await session.agent.decide(call)
    allowed = (await session.send(body, agent="roamer", hold=600)).json()["hookSpecificOutput"]
    assert allowed["permissionDecision"] == "allow"
    report = session.body("PostToolUse", tool_name="WebFetch", tool_input={"url": "https://example.com"})
    assert (await session.send(report, agent="roamer")).json() == {}
    assert (await session.agent.ended(call, agent="roamer"))["code"] == "ok"


async def test_tool_run_by_signoff_is_not_run_by_the_agent(hooks: Callable[..., Any]) -> None:
    answer = await hooks().answer("PreToolUse", tool_name="pay", tool_input={"amount": 20})
    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert answer["hookSpecificOutput"]["permissionDecisionReason"].endswith("ok: paid")


@pytest.mark.row("C19")
async def test_held_call_runs_with_the_approved_arguments(
    hooks: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, held = hooks(), Held(monkeypatch, 1)
    asked = asyncio.create_task(session.decision("rm -rf build", "toolu_1"))
    await held.all()
    call = await session.waiting()
    request = await session.agent.rig.request(f"{call}.c1.1")
    assert (request.card.effect, request.agent_says) == ("Run rm -rf build", "in /tmp/shop")
    await session.agent.decide(call, edited_args={"command": "rm -r build"})
    answer = await asked
    assert (answer["permissionDecision"], answer["updatedInput"]) == ("allow", {"command": "rm -r build"})
    assert answer["additionalContext"].startswith("Approver edited")
    assert await session.answer("PostToolUseFailure", "rm -r build", tool_use_id="toolu_1") == {}
    ended = await session.agent.ended(call)
    assert (ended["state"], ended["code"], ended["result"]) == ("ended", "execution_failed", "Exit code 3\noops")


async def test_approvers_remark_reaches_the_model_of_a_held_call(
    hooks: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, held = hooks(), Held(monkeypatch, 1)
    asked = asyncio.create_task(session.decision("rm -rf build", "toolu_1"))
    await held.all()
    await session.agent.decide(await session.waiting(), reason="tell the customer first")
    answer = await asked
    assert answer["permissionDecision"] == "allow"
    assert "\ntell the customer first\n" in answer["additionalContext"]


async def test_fifty_equal_hooks_ask_one_question(hooks: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    session, held = hooks(), Held(monkeypatch, 50)
    asked = [asyncio.create_task(session.decision("rm -rf build", "toolu_1")) for _ in range(50)]
    await held.all()
    await session.agent.decide(await session.waiting())
    assert await asyncio.gather(*asked) == [ALLOWED] * 50


async def test_two_equal_calls_ask_one_question_and_run_once(
    hooks: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, held = hooks(), Held(monkeypatch, 2)
    asked = [asyncio.create_task(session.decision("rm -rf build", f"toolu_{each}")) for each in range(2)]
    await held.all()
    await session.agent.decide(await session.waiting())
    answers = await asyncio.gather(*asked)
    assert sorted(each["permissionDecision"] for each in answers) == ["allow", "deny"]
    [refused] = [each for each in answers if each["permissionDecision"] == "deny"]
    assert "was used before" in refused["permissionDecisionReason"]


async def test_ended_hold_leaves_the_question_to_the_same_call(hooks: Callable[..., Any]) -> None:
    session = hooks()
    first = await session.decision("rm -rf build", "toolu_1", hold=0)
    assert (first["permissionDecision"], "waiting for approval" in first["permissionDecisionReason"]) == ("deny", True)
    call = await session.waiting()
    code = (await session.agent.show(call))["code"]
    again = await session.decision("rm -rf build", "toolu_2", hold=0)
    assert (again["permissionDecision"], f"approval {code} (" in again["permissionDecisionReason"]) == ("deny", True)
    assert await session.waiting() == call
    await session.agent.decide(call)
    assert await session.decision("rm -rf build", "toolu_3") == ALLOWED
    await session.answer("PostToolUse", "rm -rf build", tool_use_id="toolu_3")
    assert (await session.agent.ended(call))["code"] == "ok"
    late = await session.decision("rm -rf build", "toolu_2")
    assert "outcome already" in late["permissionDecisionReason"]
    # The run has ended, so the next one is another call.
    asked = await session.decision("rm -rf build", "toolu_4", hold=0)
    assert "waiting for approval" in asked["permissionDecisionReason"]


async def test_denial_reaches_the_later_call_once(hooks: Callable[..., Any]) -> None:
    session = hooks()
    await session.decision("rm -rf build", "toolu_1", hold=0)
    call = await session.waiting()
    await session.agent.decide(call, verdict="denied", reason="not on a Friday")
    for _ in range(2):
        denied = await session.decision("rm -rf build", "toolu_1")
        assert denied["permissionDecisionReason"] == "Denied by approver: not on a Friday"
    asked = await session.decision("rm -rf build", "toolu_2", hold=0)
    assert "waiting for approval" in asked["permissionDecisionReason"]
    assert await session.waiting() != call


async def test_same_id_with_other_arguments_is_another_call(hooks: Callable[..., Any]) -> None:
    session = hooks()
    assert await session.decision("ls", "call_0") == ALLOWED
    denied = await session.decision("sudo ls", "call_0")
    assert (denied["permissionDecision"], "other content" in denied["permissionDecisionReason"]) == ("deny", False)


async def test_deferrable_call_is_deferred_while_it_waits(hooks: Callable[..., Any]) -> None:
    session = hooks()
    body = session.body("PreToolUse", "rm -rf build")
    answer = (await session.send(body, defer=True)).json()["hookSpecificOutput"]
    assert (answer["permissionDecision"], "waiting" in answer["permissionDecisionReason"]) == ("defer", True)
    call = await session.waiting()
    await session.agent.decide(call)
    assert (await session.send(body, defer=True, hold=600)).json()["hookSpecificOutput"][
        "permissionDecision"
    ] == "allow"
    other = session.body("PermissionRequest", "rm -rf dist")
    assert (await session.send(other, defer=True)).json()["hookSpecificOutput"]["decision"]["behavior"] == "deny"


async def test_permission_request_is_answered_and_its_run_reported(hooks: Callable[..., Any]) -> None:
    session = hooks()
    answer = await session.answer("PermissionRequest", "rm -rf build", hold=0)
    assert answer["hookSpecificOutput"]["decision"]["behavior"] == "deny"
    call = await session.waiting()
    await session.agent.decide(call, edited_args={"command": "rm -r build"})
    answer = await session.answer("PermissionRequest", "rm -rf build")
    assert answer["hookSpecificOutput"]["decision"] == {"behavior": "allow", "updatedInput": {"command": "rm -r build"}}
    assert await session.answer("PostToolUse", "rm -r build", tool_use_id="toolu_1") == {}
    await session.agent.ended(call)


async def test_codex_does_not_run_edited_arguments_in_a_permission_request(hooks: Callable[..., Any]) -> None:
    session = hooks("codex")
    body = session.body("PreToolUse", "rm -rf build", hook_event_name="PermissionRequest", tool_use_id="")
    await session.send(body)
    call = await session.waiting()
    await session.agent.decide(call, edited_args={"command": "rm -r build"})
    answer = (await session.send(body, hold=600)).json()["hookSpecificOutput"]["decision"]
    assert (answer["behavior"], "'rm -r build'" in answer["message"]) == ("deny", True)
    assert (await session.agent.ended(call))["code"] == "execution_failed"


async def test_codex_gets_an_empty_answer_for_a_permitted_call(hooks: Callable[..., Any]) -> None:
    session = hooks("codex")
    assert await session.answer("PreToolUse", "ls") == {}
    assert await session.answer("PostToolUse", "ls") == {}
    denied = await session.answer("PreToolUse", "sudo ls", tool_use_id="call_11")
    assert denied["hookSpecificOutput"]["permissionDecision"] == "deny"


async def test_result_of_megabytes_is_truncated(hooks: Callable[..., Any]) -> None:
    session = hooks()
    await session.send(session.body("PreToolUse", "rm -rf dist", tool_use_id="toolu_1"))
    call = await session.waiting()
    await session.agent.decide(call)
    assert await session.decision("rm -rf dist", "toolu_1") == ALLOWED
    answered = {"stdout": "x" * 2 * MIB}
    assert await session.answer("PostToolUse", "rm -rf dist", tool_use_id="toolu_1", tool_response=answered) == {}
    ended = await session.agent.ended(call)
    assert (ended["state"], ended["code"]) == ("ended", "ok")
    assert ended["result"].startswith('{"stdout": "xxx')
    assert f"(cut: {2 * MIB + 13} bytes of JSON, sha-256 " in ended["result"]


async def test_report_of_an_unknown_call_is_answered_empty(hooks: Callable[..., Any]) -> None:
    session = hooks()
    assert await session.answer("PostToolUse", "cat x", tool_use_id="toolu_9") == {}
    await session.decision("sudo ls", "toolu_1")
    assert await session.answer("PostToolUse", "sudo ls", tool_use_id="toolu_1") == {}
    assert await session.answer("PostToolUse", "ls", tool_name="x" * 65) == {}


async def test_aborted_hook_uses_no_permit(hooks: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    session, held, port, answered = hooks(), Held(monkeypatch, 1), free_port(), asyncio.Event()
    wait, gate = OwnCalls.wait, HookCalls.gate

    async def wait_and_decide(self: OwnCalls, call: CallHandle, seconds: float) -> OwnCall:
        left = await wait(self, call, seconds)
        if not seconds:
            return left
        await session.agent.decide(call.id)
        for pause in pauses():
            answer = await read_call(self._deps, left.turn)
            if answer.state not in MOVING:
                break
            await asyncio.sleep(pause)
        return dataclasses.replace(left, answer=answer)

    async def gate_and_tell(self: HookCalls, event: HookBody) -> HookAnswer:
        try:
            return await gate(self, event)
        finally:
            answered.set()

    monkeypatch.setattr(OwnCalls, "wait", wait_and_decide)
    monkeypatch.setattr(HookCalls, "gate", gate_and_tell)
    async with running_app(session.agent.rig.app, port), httpx2.AsyncClient(timeout=600) as http:
        body = session.body("PreToolUse", "rm -rf build")
        url, host = f"http://127.0.0.1:{port}/v1/hooks/claude-code?agent=coder&hold=600", {"host": "127.0.0.1:8300"}
        asked = asyncio.create_task(http.post(url, json=body, headers=host))
        await held.all()
        asked.cancel()
        await answered.wait()
    monkeypatch.undo()
    assert await session.decision("rm -rf build", "toolu_2") == ALLOWED


async def test_stopping_gateway_answers_held_hooks(hooks: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    session, held = hooks(), Held(monkeypatch, 1)
    stopping = second_gateway(session.agent)
    async with stopping.http:
        other = dataclasses.replace(session, agent=stopping)
        asked = asyncio.create_task(other.decision("rm -rf build", "toolu_1"))
        await held.all()
        stopping.rig.app.state.live.close()
        denied = await asked
    assert "waiting for approval" in denied["permissionDecisionReason"]
    await session.agent.decide(await session.waiting())
    assert await session.decision("rm -rf build", "toolu_1") == ALLOWED


async def test_conflict_names_the_hooks_tool_use_id(hooks: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    session, held = hooks(), Held(monkeypatch, 1)
    asked = asyncio.create_task(session.decision("rm -rf build", "toolu_7"))
    await held.all()
    await session.agent.decide(await session.waiting(), edited_args={"command": "rm -r build"})
    await asked
    # The approved arguments under the same id: that id is the call with the proposed ones.
    denied = await session.decision("rm -r build", "toolu_7")
    assert (denied["permissionDecision"], "`tool_use_id` `toolu_7`" in denied["permissionDecisionReason"]) == (
        "deny",
        True,
    )


async def shell(session: Any, use: str, words: str, command: str = "npm test") -> dict[str, Any]:
    """`description` is only text."""
    given = {"command": command, "description": words}
    sent = session.body("PreToolUse", tool_name="Terminal", tool_input=given, tool_use_id=use)
    found: dict[str, Any] = (await session.send(sent, hold=0)).json()["hookSpecificOutput"]
    return found


async def test_grant_serves_a_call_with_another_description(hooks: Callable[..., Any]) -> None:
    session = hooks()
    await shell(session, "t1", "Run the tests")
    call = await session.waiting()
    request = await session.agent.rig.request(f"{call}.c1.1")
    assert ("description", "Run the tests") in [(row.name, row.value) for row in request.card.rows]
    await session.agent.decide(call, remember={"scope": "session"})
    assert (await shell(session, "t1", "Run the tests"))["permissionDecision"] == "allow"
    later = await shell(session, "t2", "Run the test suite again")
    assert (later["permissionDecision"], later.get("updatedInput")) == ("allow", None)
    assert (await shell(session, "t3", "Run the tests", "npm publish"))["permissionDecision"] == "deny"


async def test_call_with_another_description_joins_the_waiting_one(hooks: Callable[..., Any]) -> None:
    session = hooks()
    await shell(session, "t1", "Run the tests")
    call = await session.waiting()
    await shell(session, "t2", "Run the test suite")
    assert await session.waiting() == call
    await session.agent.decide(call)
    # It runs with its own description, which is not an edit.
    joined = await shell(session, "t2", "Run the test suite")
    assert (joined["permissionDecision"], joined.get("updatedInput")) == ("allow", None)
