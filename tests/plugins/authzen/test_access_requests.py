import copy
import uuid
from datetime import timedelta
from typing import Any

from authzen_rig import REQUESTS, EnforcementPoint, asking, call_of, enforcement_point, submission, with_approval
from call_rig import CallRig, approval_of, production_gateway, refusals
from gateway_rig import PEOPLE
from tables import table

from signoff.gateway.signed_state import plugin_sealer
from signoff.plugins.authzen.asked_call import AskedCall
from signoff.plugins.authzen.problems import PROBLEM_TYPE
from signoff.plugins.authzen.sealed_ids import DENIAL_SECONDS, SEAL, seal_denial


def problem(answer: Any) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    told = answer.json()
    assert told["status"] == answer.status_code
    return answer.status_code, told["type"].removeprefix(PROBLEM_TYPE)


async def test_approvers_are_asked_once_per_denial(point: EnforcementPoint) -> None:
    body = asking(business_justification="charged twice")
    decision = await point.evaluate(body)
    first = await point.submit(body, decision)
    assert first.status_code == 202
    task = first.json()["task"]
    assert task["status"] == "pending"
    assert first.headers["location"] == task["status_endpoint"]
    assert (await point.submit(body, decision)).json()["task"]["id"] == task["id"]
    request = await point.agent.rig.request(approval_of(call_of(task)))
    assert (request.agent_says, request.actor, request.requester.user) == ("charged twice", "coder", "guest")
    shown = await point.show(task)
    assert (shown["task"]["id"], shown["task"]["status"], "result" in shown) == (task["id"], "pending", False)
    assert len(shown["task"]["display"]["description"]) == len("K7Q-2FM")
    assert shown["task"]["expires_at"]


async def test_evaluation_is_false_while_the_request_is_pending(point: EnforcementPoint) -> None:
    body = asking()
    task = await point.asked(body)
    assert (await point.evaluate(body))["decision"] is False
    await point.decide(task)
    assert (await point.evaluate(body))["decision"] is False
    approval = (await point.show(task))["result"]["approval"]
    assert (await point.evaluate(with_approval(body, approval)))["decision"] is True
    # It stays approved, although it is used.
    after = await point.show(task)
    assert (after["task"]["status"], after["result"]["approval"]["id"]) == ("approved", approval["id"])


async def test_denied_request_is_a_denied_task(point: EnforcementPoint) -> None:
    task = await point.asked(asking())
    await point.decide(task, verdict="denied", reason="not this month")
    found = await point.show(task)
    assert (found["task"]["status"], "result" in found) == ("denied", False)
    assert found["task"]["display"]["description"] == "not this month"


async def test_ungated_call_is_approved_at_once(point: EnforcementPoint) -> None:
    body, deps = asking(20), point.agent.rig.deps
    asked = AskedCall("main", "coder", PEOPLE[0].id, "refund", body["action"]["properties"]["arguments"])
    evaluation, until = seal_denial(await plugin_sealer(deps.store, SEAL), asked, deps.clock())
    denial = {"evaluation_id": evaluation, "expires_at": until.isoformat()}
    answer = await point.http.post(REQUESTS, json=body | {"denial": denial})
    assert (answer.status_code, answer.json()["task"]["status"]) == (201, "approved")
    anew = with_approval(body, answer.json()["result"]["approval"])
    assert [(await point.evaluate(anew))["decision"] for _ in range(2)] == [True, False]


@table("change", "evaluation_id", "arguments", "subject", "tool", "guessed", "of another agent")
async def test_request_that_differs_from_its_denial_is_refused(point: EnforcementPoint, change: str) -> None:
    body = asking()
    sent = submission(body, await point.evaluate(body))
    if change == "evaluation_id":
        del sent["denial"]["evaluation_id"]
    if change == "arguments":
        sent["action"]["properties"]["arguments"]["euro"] = 300
    if change == "subject":
        sent["subject"]["id"] = "ana"
    if change == "tool":
        sent["resource"]["id"] = "quick"
    if change == "guessed":
        sent["denial"]["evaluation_id"] = "e30.AAAA"
    if change == "of another agent":
        async with enforcement_point(point.agent, "clerk") as clerk:
            sent["subject"] = {"type": "user", "id": "bo"}
            assert problem(await clerk.http.post(REQUESTS, json=sent)) == (400, "invalid_denial_binding")
        return
    kind = "not_requestable" if change == "subject" else "invalid_denial_binding"
    assert problem(await point.http.post(REQUESTS, json=sent)) == (400, kind)


async def test_refused_access_request_is_recorded(point: EnforcementPoint) -> None:
    gateway = production_gateway(point.agent.rig)
    async with enforcement_point(CallRig(gateway)) as own:
        before = await refusals(gateway, "actor:coder", "refund")
        body, key = asking(), uuid.uuid4().hex
        denied = await own.evaluate(body)
        edited = copy.deepcopy(submission(body, denied))
        edited["action"]["properties"]["arguments"]["euro"] = 300
        assert problem(await own.http.post(REQUESTS, json=edited)) == (400, "invalid_denial_binding")
        assert (await own.submit(body, denied, key)).status_code == 202
        other = asking(order="B8")
        assert problem(await own.submit(other, await own.evaluate(other), key)) == (409, "duplicate_request")
        found = (await refusals(gateway, "actor:coder", "refund"))[len(before) :]
        assert [each["code"] for each in found] == ["unproved", "conflict"]
        before = await refusals(gateway, "actor:coder")
        assert problem(await own.http.get(f"{REQUESTS}/guessed")) == (404, "unknown_task")
        assert [each["code"] for each in (await refusals(gateway, "actor:coder"))[len(before) :]] == ["unknown"]


async def test_expired_denial_is_refused(point: EnforcementPoint) -> None:
    body = asking()
    sent = submission(body, await point.evaluate(body))
    sent["denial"]["expires_at"] = "2999-01-01T00:00:00Z"
    deps = point.agent.rig.deps
    late = production_gateway(point.agent.rig, lambda: deps.clock() + timedelta(seconds=DENIAL_SECONDS))
    async with enforcement_point(CallRig(late)) as own:
        assert problem(await own.http.post(REQUESTS, json=sent)) == (410, "expired_denial")


async def test_key_belongs_to_one_access_request(point: EnforcementPoint) -> None:
    body, key = asking(), "key-of-one-request"
    first = await point.submit(body, await point.evaluate(body), key)
    again = await point.submit(body, await point.evaluate(body), key)
    assert first.json()["task"]["id"] == again.json()["task"]["id"]
    other = asking()
    assert problem(await point.submit(other, await point.evaluate(other), key)) == (409, "duplicate_request")


async def test_claim_of_another_actor_is_refused(point: EnforcementPoint) -> None:
    body = asking()
    sent = submission(body, await point.evaluate(body))
    for actor in ({"id": "clerk"}, {"id": "coder", "act": {"sub": "boss"}}):
        assert problem(await point.http.post(REQUESTS, json=sent | {"client": {"actor": actor}})) == (
            403,
            "about:blank",
        )
    assert (await point.http.post(REQUESTS, json=sent | {"client": {"actor": {"id": "coder"}}})).status_code == 202


async def test_pending_request_is_withdrawn_once(point: EnforcementPoint) -> None:
    task = await point.asked(asking())
    answer = await point.http.post(task["links"]["cancel"], json={"reason": "no_longer_needed"})
    assert (answer.status_code, answer.json()["task"]["status"]) == (200, "cancelled")
    assert "cancel" not in answer.json()["task"]["links"]
    assert problem(await point.http.post(task["links"]["cancel"], json={})) == (409, "invalid_task_state")
    decided = await point.asked(asking())
    await point.decide(decided)
    assert problem(await point.http.post(decided["links"]["cancel"], json={})) == (409, "invalid_task_state")


async def test_access_task_is_visible_only_to_its_own_agent(point: EnforcementPoint) -> None:
    task = await point.asked(asking())
    async with enforcement_point(point.agent, "clerk") as clerk:
        told = await clerk.http.get(task["status_endpoint"])
        assert problem(told) == (404, "unknown_task")
        assert problem(await clerk.http.post(f"{task['status_endpoint']}/cancel", json={})) == (404, "unknown_task")
    for guessed in ("guessed", "e30.AAAA", call_of(task), "x" * 3_000):
        assert problem(await point.http.get(f"{REQUESTS}/{guessed}")) == (404, "unknown_task")
