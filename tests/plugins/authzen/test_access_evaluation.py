import asyncio
import copy
from typing import Any

import pytest
from authzen_rig import EnforcementPoint, asking, call_of, enforcement_point, with_approval
from call_rig import CallRig, production_gateway, refusals
from tables import table

from signoff.gateway.signed_state import plugin_sealer
from signoff.plugins.authzen.sealed_ids import SEAL, SealedCall, seal_approval

RACERS = 20


async def waiting(point: EnforcementPoint) -> set[str]:
    answer = await point.agent.http.get("/v1/approvals?limit=100")
    return {each["id"] for each in answer.json()["approvals"]}


async def test_evaluation_answers_by_rule_and_leaves_nothing(point: EnforcementPoint) -> None:
    before = await waiting(point)
    assert await point.evaluate(asking(20)) == {"decision": True}
    asked = await point.evaluate(asking(200))
    assert (asked["decision"], asked["context"]["reason"]) == (False, "approval_required")
    assert set(asked["context"]["access_request"]) == {"expires_at"}
    denied = await point.evaluate(asking(2_000))
    assert (denied["decision"], denied["context"]["reason"]) == (False, "policy_denied")
    assert "deny_if" in denied["context"]["reason_user"]["en"]
    assert "access_request" not in denied["context"]
    assert await waiting(point) == before


def changed(*path: str, to: Any) -> dict[str, Any]:
    body = copy.deepcopy(asking(20))
    place = body
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = to
    return body


@table(
    ("body", "reason"),
    (changed("resource", "id", to="refnud"), "not_available"),
    (changed("resource", "type", to="document"), "unknown_resource"),
    (changed("action", "name", to="can_read"), "unknown_action"),
    # Signoff runs this tool itself, so no enforcement point may.
    (asking(20, tool="pay") | {"action": {"name": "invoke", "properties": {"arguments": {"amount": 20}}}}, "run"),
    (changed("subject", "id", to="ana"), "subject_not_allowed"),
    (changed("subject", "id", to="nobody"), "subject_not_allowed"),
    (changed("subject", "type", to="group"), "subject_not_allowed"),
    (changed("subject", "properties", "act", to={"sub": "clerk"}), "subject_not_allowed"),
    (changed("subject", "properties", "act", to="coder"), "subject_not_allowed"),
    (changed("subject", "properties", "act", to={"sub": "coder", "act": {"sub": "x"}}), "subject_not_allowed"),
    (changed("subject", to={"type": "agent", "id": "clerk"}), "subject_not_allowed"),
    (changed("action", "properties", "arguments", to={"order": "A7"}), "invalid_arguments"),
    (changed("action", "properties", "arguments", to=[1]), "invalid_arguments"),
    (changed("action", "properties", "arguments", to={"order": "x" * 70_000, "euro": 1}), "invalid_arguments"),
)
async def test_evaluation_of_a_foreign_or_invalid_call_is_false(
    point: EnforcementPoint, body: dict[str, Any], reason: str
) -> None:
    found = await point.evaluate(body)
    assert found["decision"] is False
    assert found["context"]["reason"].startswith(reason), found
    assert "access_request" not in found["context"]


@table(
    ("body", "code", "tool"),
    (changed("resource", "id", to="refnud"), "unknown", "refnud"),
    (changed("subject", "id", to="ana"), "not_allowed", "refund"),
    (asking(20, approval={"id": "guessed"}), "unproved", "refund"),
)
async def test_refused_evaluation_is_recorded(
    point: EnforcementPoint, body: dict[str, Any], code: str, tool: str
) -> None:
    gateway = production_gateway(point.agent.rig)
    async with enforcement_point(CallRig(gateway)) as own:
        before = await refusals(gateway, "actor:coder", tool)
        assert (await own.evaluate(body))["decision"] is False
        assert [each["code"] for each in (await refusals(gateway, "actor:coder", tool))[len(before) :]] == [code]


async def test_agent_itself_may_be_the_subject(point: EnforcementPoint) -> None:
    for subject in ({"type": "agent", "id": "coder"}, {"type": "identity", "id": "guest"}):
        assert (await point.evaluate(asking(20) | {"subject": subject}))["decision"] is True
    async with enforcement_point(point.agent, "clerk") as clerk:
        several = await clerk.evaluate(asking(20) | {"subject": {"type": "agent", "id": "clerk"}})
    assert (several["decision"], several["context"]["reason"]) == (False, "subject_not_allowed")


@pytest.mark.row("C20")
async def test_approval_makes_an_evaluation_true_once(point: EnforcementPoint) -> None:
    body = asking()
    approval = await point.approved(body)
    anew = with_approval(body, approval)
    found = await point.evaluate(anew)
    assert found["decision"] is True
    told = found["context"]
    assert told["approval"] == {"id": approval["id"], "approved_until": approval["approved_until"]}
    assert (await point.agent.report(told["call"])).json()["code"] == "ok"
    again = (await point.evaluate(anew))["context"]
    assert (again["next_action"], "access_request" in again) == ("none", False)
    kinds = dict(await point.agent.record(told["call"]))
    assert (kinds["outcome"]["code"], kinds["outcome"]["ticket"]) == ("ok", told["key"])


async def test_one_of_twenty_racing_evaluations_is_true(point: EnforcementPoint) -> None:
    body = asking()
    anew = with_approval(body, await point.approved(body))
    start = asyncio.Event()

    async def race() -> dict[str, Any]:
        await start.wait()
        return await point.evaluate(anew)

    racing = [asyncio.create_task(race()) for _ in range(RACERS)]
    start.set()
    found = await asyncio.gather(*racing)
    losers = [each["context"] for each in found if not each["decision"]]
    assert len(losers) == RACERS - 1
    assert {(each["reason"], each["next_action"]) for each in losers} == {("approval_used", "none")}


async def test_approval_covers_only_the_approved_call(point: EnforcementPoint) -> None:
    body, other = asking(), asking()
    approval = await point.approved(body)
    edited = copy.deepcopy(body)
    edited["action"]["properties"]["arguments"]["euro"] = 201
    for each in (edited, body | {"resource": {"type": "tool", "id": "quick"}}, other):
        told = (await point.evaluate(with_approval(each, approval)))["context"]
        assert (told["reason"], told["next_action"]) == ("out_of_scope", "request")
        assert told["access_request"], told
    denied = copy.deepcopy(body)
    denied["action"]["properties"]["arguments"]["euro"] = 5_000
    told = (await point.evaluate(with_approval(denied, approval)))["context"]
    assert (told["reason"], told["next_action"], "access_request" in told) == ("out_of_scope", "none", False)
    async with enforcement_point(point.agent, "clerk") as clerk:
        subject = {"type": "user", "id": "bo"}
        told = (await clerk.evaluate(with_approval(body | {"subject": subject}, approval)))["context"]
        assert told["reason"] == "approval_unverifiable"
    assert (await point.evaluate(with_approval(body, approval)))["decision"] is True


async def test_approval_used_for_another_call_is_recorded(point: EnforcementPoint) -> None:
    body, gateway = asking(), production_gateway(point.agent.rig)
    approval = await point.approved(body)
    edited = copy.deepcopy(body)
    edited["action"]["properties"]["arguments"]["euro"] = 201
    async with enforcement_point(CallRig(gateway)) as own:
        before = await refusals(gateway, "actor:coder", "refund")
        assert (await own.evaluate(with_approval(edited, approval)))["decision"] is False
        assert [each["code"] for each in (await refusals(gateway, "actor:coder", "refund"))[len(before) :]] == ["stale"]


@table("approval", None, "yes", {}, {"id": 7}, {"id": "guessed"}, {"id": "e30.AAAA"}, True)
async def test_invalid_approval_is_false(point: EnforcementPoint, approval: Any) -> None:
    found = await point.evaluate(with_approval(asking(20), approval))
    assert (found["decision"], found["context"]["reason"]) == (False, "approval_unverifiable")


async def test_task_id_does_not_count_as_an_approval(point: EnforcementPoint) -> None:
    body = asking()
    task = await point.asked(body)
    told = (await point.evaluate(with_approval(body, {"id": task["id"]})))["context"]
    assert told["reason"] == "approval_unverifiable"


async def test_edited_call_does_not_run_as_proposed(point: EnforcementPoint) -> None:
    body = asking()
    task = await point.asked(body)
    order = body["action"]["properties"]["arguments"]["order"]
    await point.decide(task, edited_args={"order": order, "euro": 150})
    found = await point.show(task)
    assert (found["task"]["status"], "result" in found) == ("denied", False)
    assert "150" in found["task"]["display"]["description"]
    # The reference of such an approval is never issued, and could not use it up.
    key = await plugin_sealer(point.agent.rig.deps.store, SEAL)
    reference = {"id": seal_approval(key, SealedCall(call_of(task), "coder"))}
    told = (await point.evaluate(with_approval(body, reference)))["context"]
    assert (told["reason"], told["next_action"]) == ("out_of_scope", "none")
    assert (await point.agent.show(call_of(task)))["state"] == "permitted"


async def test_undeclared_tool_is_requestable_if_its_agent_may_ask(point: EnforcementPoint) -> None:
    body = asking(20, tool="Shell")
    async with enforcement_point(point.agent, "roamer") as roamer:
        body["subject"] = {"type": "agent", "id": "roamer"}
        task = await roamer.asked(body)
        assert (await point.agent.decide(call_of(task))).json()["status"] == "accepted"
        shown: dict[str, Any] = {}
        while "result" not in shown:
            shown = await roamer.show(task)
            await asyncio.sleep(0.05)
        anew = with_approval(body, shown["result"]["approval"])
        assert [(await roamer.evaluate(anew))["decision"] for _ in range(2)] == [True, False]
