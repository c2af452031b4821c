import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from call_rig import CallRig, call_rig, refund_tool
from gateway_login import bearer, locked_rig, token_of
from gateway_rig import MONEY, GatewayRig, gateway_rig, turn_of
from passkey_device import PasskeyDevice
from polling import pauses
from some import some
from sqlalchemy import Connection, update
from tables import table
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.audit.log import AuditLog
from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.limits import ANSWER_BYTES
from signoff.decisions.typed_answer import answer_objection
from signoff.formats.replace import replace
from signoff.gateway.approvals.turn_proof import UNANSWERED, UNPROVED, CallProof
from signoff.gateway.auth.passkey_registration import PasskeyRegistration
from signoff.keys.passkeys import relying_party
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor, ExternalAgent
from signoff.registry.catalog import Catalog
from signoff.store.store import Store
from signoff.store.tables import BLOBS
from signoff.testing.builders import a_person

ANSWER = {"amount": 12, "why": "half is enough"}
SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "number", "title": "Amount"}, "why": {"type": "string"}},
    "required": ["amount"],
    "additionalProperties": False,
}
PEOPLE = (
    a_person("approver", roles=("approvers",)),
    a_person("ana", roles=("finance", "approvers")),
    a_person("bo", roles=("finance", "approvers")),
    a_person("guest", roles=("finance",)),
)


def answer_catalog(ledger: Ledger) -> Catalog:
    def tool(name: str, policy: ApprovalPolicy, **fields: Any) -> Any:
        given = {"input_schema": MONEY, "effect": "Pay {amount} to {to}", "title": "Pay", "answer_schema": SCHEMA}
        return pay_tool(ledger, policy, name=name, **(given | fields))

    tools = [
        tool("pay", ApprovalPolicy(edit="approve")),
        tool("both", ApprovalPolicy(approvers=("role:finance",), quorum=2, edit="approve")),
        tool("easy", ApprovalPolicy(approvers=("role:finance",), allow_self_approval=True)),
        tool("guarded", ApprovalPolicy(min_assurance="present")),
        tool("small", ApprovalPolicy(), answer_schema={"type": "string", "maxLength": 200_000}),
    ]
    return catalog_of(tools, actors=[Actor(name="desk", model="scripted")], people=PEOPLE)


@pytest.fixture
async def rig(client: Client, tmp_path: Path, task_queue: str, store: Store) -> AsyncIterator[GatewayRig]:
    async with gateway_rig(client, store, task_queue, catalog_of_ledger=answer_catalog) as found:
        yield found


async def answer(rig: GatewayRig, approval: str, given: Any = ANSWER, **fields: Any) -> httpx2.Response:
    request = await rig.request(approval)
    shown = {"revision": request.revision, "question_hash": request.question_hash}
    return await rig.decide(approval, **{"verdict": "answered", "answer": given} | shown | fields)


async def kinds(rig: GatewayRig, approval: str) -> list[str]:
    return [each.kind for each in await AuditLog(rig.deps.store).stream(turn_of(approval).workflow_id)]


async def test_answer_over_the_api_ends_its_call_without_a_run(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    shown = (await rig.http.get(f"/v1/approvals/{approval}")).json()
    assert shown["answer_schema"] == SCHEMA
    sent = await answer(rig, approval, reason="sold out", delivery_id="k1")
    receipt = sent.json()
    assert (sent.status_code, receipt["status"], receipt["state"]) == (200, "accepted", "answered")
    [call] = (await rig.turns.signoff.result(turn_of(approval))).calls
    assert (call.code, call.value.inline["answer"], call.value.inline["remark"]) == ("answered", ANSWER, "sold out")
    again = (await answer(rig, approval, reason="sold out", delivery_id="k1")).json()
    assert (again["status"], again["code"], again["state"]) == ("accepted", "duplicate", "answered")
    late = await rig.decide(approval, verdict="approved", revision=1)
    assert (late.status_code, late.json()["verdict"]) == (409, "answered")
    assert await rig.runs(approval) == 0
    assert "execution" not in await kinds(rig, approval)
    view = (await rig.http.get(f"/v1/turns/{'.'.join(turn_of(approval))}")).json()
    [shown_call] = view["calls"]
    assert (shown_call["state"], shown_call["outcome"]["value"]["inline"]["answer"]) == ("answered", ANSWER)


async def test_stored_answer_is_signed_over_its_content(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    await answer(rig, approval)
    loaded = await rig.deps.requests.load(approval)
    [vote] = loaded.request.votes
    verifier = rig.deps.verifier()
    assert vote.decision.answer == ANSWER
    assert verifier.check_decision(vote.decision)
    assert not verifier.check_decision(replace(vote.decision, answer={"amount": 13}))


async def proved(rig: GatewayRig, approval: str, **claim: Any) -> CallOutcome:
    key = turn_of(approval)
    view = await rig.deps.claimed_view(key)
    fields: dict[str, Any] = {"call": "c1.1", "tool": "pay", "gate": "execute"} | claim
    lie = CallOutcome(**fields)
    forged = replace(view, calls=(replace(view.calls[0], outcome=lie),))
    return some((await rig.deps.prove(forged, await rig.deps.read_start(key))).calls[0].outcome)


async def test_answer_that_a_turn_claims_is_replaced_by_that_of_the_store(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    await answer(rig, approval)
    await rig.turns.signoff.result(turn_of(approval))
    lie: dict[str, Any] = {"code": "answered", "value": Content(inline="pay it all"), "decided_by": "eve"}
    found = await proved(rig, approval, **lie)
    assert (found.code, found.value.inline["answer"], found.decided_by) == ("answered", ANSWER, "approver")
    claimed = CallOutcome(call="c1.1", tool="pay", **lie)
    alone = CallProof(turn=turn_of(approval), catalog=rig.deps.catalog).outcome(claimed)
    assert (alone.code, alone.value.inline, alone.decided_by) == ("refused", UNANSWERED, "")


async def test_turn_cannot_show_an_answered_call_as_executed(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    await answer(rig, approval)
    await rig.turns.signoff.result(turn_of(approval))
    found = await proved(rig, approval, code="ok", value=Content(inline="paid"), decided_by="approver")
    assert (found.code, found.value.inline, found.decided_by) == ("in_doubt", UNPROVED, "")


async def test_answer_of_a_turn_needs_the_ticket_of_its_question(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    await answer(rig, approval)
    await rig.turns.signoff.result(turn_of(approval))
    [ticket] = await rig.deps.store.tickets_of_turn(turn_of(approval).workflow_id)
    asked = {"c1.1": await rig.deps.requests.load(approval)}
    claim = CallOutcome(call="c1.1", tool="pay", code="answered")

    def code(**tickets: Any) -> str:
        return CallProof(turn_of(approval), rig.deps.catalog, asked, **tickets).outcome(claim).code

    assert code(answered=(ticket,)) == "answered"
    assert code() == "refused"
    assert code(done=(ticket,)) == "refused"
    assert code(answered=(replace(ticket, key="0" * 64),)) == "refused"
    assert code(answered=(replace(ticket, call="c1.2"),)) == "refused"
    # A read that ran may have no ticket. An answered one has.
    reads, ran = catalog_of([pay_tool(Ledger(), read_only=True)]), replace(claim, code="ok")
    assert CallProof(turn_of(approval), reads, asked).outcome(ran).code == "ok"
    assert CallProof(turn_of(approval), reads, asked, answered=(ticket,)).outcome(ran).code == "in_doubt"


@table(
    ("given", "place"),
    ({"amount": "much"}, "`answer.amount`"),
    ({}, "`answer.amount`"),
    ({"amount": 1, "more": 2}, "`answer"),
    ([], "`answer`"),
    ("12", "`answer`"),
)
async def test_misfit_is_refused_with_its_place_and_recorded(rig: GatewayRig, given: Any, place: str) -> None:
    approval = await rig.asked("pay")
    sent = await answer(rig, approval, given)
    receipt = sent.json()
    assert (sent.status_code, receipt["code"]) == (422, "malformed")
    assert receipt["message"].startswith(place), receipt
    assert (await rig.request(approval)).state == "pending"
    assert "attempt" in await kinds(rig, approval)
    assert (await answer(rig, approval)).json()["state"] == "answered"


async def test_too_large_answer_is_refused_and_the_request_waits(rig: GatewayRig) -> None:
    approval = await rig.asked("small")
    huge = await answer(rig, approval, "x" * 10_000_000)
    assert huge.status_code in (413, 422)
    deep: Any = "end"
    for _ in range(40):
        deep = [deep]
    assert (await answer(rig, approval, deep)).status_code == 422
    large = await answer(rig, approval, "x" * (ANSWER_BYTES + 1))
    assert large.status_code == 422
    assert (await rig.request(approval)).state == "pending"


async def test_requester_never_answers_although_they_may_approve(rig: GatewayRig) -> None:
    approval = await rig.asked("easy", user="guest")
    refused = await answer(rig, approval, **{"as": "guest"})
    assert (refused.status_code, refused.json()["code"]) == (403, "self_approval")
    approved = await rig.decide(approval, verdict="approved", revision=1, **{"as": "guest"})
    assert approved.json()["status"] == "accepted"


async def test_stranger_to_the_request_never_answers(rig: GatewayRig) -> None:
    approval = await rig.asked("easy")
    refused = await answer(rig, approval, **{"as": "approver"})
    assert refused.json()["status"] == "refused"
    assert (await rig.request(approval)).state == "pending"


async def test_one_of_two_approvers_cannot_answer(rig: GatewayRig) -> None:
    approval = await rig.asked("both")
    refused = await answer(rig, approval, **{"as": "ana"})
    assert (refused.status_code, refused.json()["why"]) == (403, "several")


@pytest.mark.parametrize("first", ["approved", "answered"])
async def test_race_of_approval_and_answer_has_one_effect(rig: GatewayRig, first: str) -> None:
    approval = await rig.asked("pay")
    approving = rig.decide(approval, verdict="approved", revision=1, **{"as": "ana"})
    answering = answer(rig, approval, **{"as": "bo"})
    both = [approving, answering] if first == "approved" else [answering, approving]
    receipts = [each.json() for each in await asyncio.gather(*both)]
    assert sorted(each["status"] for each in receipts) == ["accepted", "refused"]
    [call] = (await rig.turns.signoff.result(turn_of(approval))).calls
    state = (await rig.request(approval)).state
    assert (state, call.code, await rig.runs(approval)) in (("approved", "ok", 1), ("answered", "answered", 0))


async def test_passkey_confirms_exactly_this_answer(rig: GatewayRig) -> None:
    party = relying_party(rig.deps.settings.public_url)
    device = PasskeyDevice(rp_id=party.id, origin=party.origin)
    who = rig.deps.people.find("approver", "main")
    assert who is not None
    registration = PasskeyRegistration(rig.deps)
    begun = await registration.begin(who)
    await registration.finish(who, begun.nonce, device.create(begun.create["challenge"]), None)
    approval = await rig.asked("guarded")
    request = await rig.request(approval)
    assert (await answer(rig, approval)).json()["code"] == "assurance"
    draft = {"verdict": "answered", "answer": ANSWER, "revision": 1, "question_hash": request.question_hash}
    options = (await rig.http.post(f"/v1/approvals/{approval}/passkey", json=draft)).json()
    proof = device.answer(options["public_key"]["challenge"], options["nonce"]).model_dump()
    other = await answer(rig, approval, {"amount": 1_000}, passkey=proof)
    assert (other.json()["code"], other.json()["why"]) == ("assurance", "passkey_misfit")
    assert (await answer(rig, approval, passkey=proof)).json()["state"] == "answered"
    [call] = (await rig.turns.signoff.result(turn_of(approval))).calls
    assert (call.code, call.value.inline["answer"]) == ("answered", ANSWER)


async def test_answer_needs_the_values_that_the_card_leaves_out(rig: GatewayRig) -> None:
    approval = await rig.asked("long")
    refused = await answer(rig, approval)
    assert (refused.status_code, refused.json()["why"]) == (422, "unseen")
    seen = (await rig.http.get(f"/v1/approvals/{approval}")).json()["seen"]
    assert (await answer(rig, approval, seen=seen)).json()["state"] == "answered"


async def test_answer_before_the_agent_replied_is_stale(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    asked = await rig.http.post(f"/v1/approvals/{approval}/messages", json={"text": "Are you busy?"})
    assert asked.json()["status"] == "accepted"
    refused = await answer(rig, approval)
    assert (refused.status_code, refused.json()["why"]) == (409, "thread")


async def test_token_without_the_right_to_decide_answers_nothing(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    locked = locked_rig(rig, people=PEOPLE)
    request = await rig.request(approval)
    body = {"verdict": "answered", "answer": ANSWER, "revision": 1, "question_hash": request.question_hash}
    reader = bearer(await token_of(locked, "approver", "read"))
    sent = await locked.http.post(f"/v1/approvals/{approval}/decide", json=body, headers=reader)
    assert sent.status_code in (401, 403)
    assert (await rig.request(approval)).state == "pending"


async def test_schema_that_no_longer_matches_its_hash_takes_no_answer(rig: GatewayRig) -> None:
    """A worker can write blobs, so only the hash in the shown question binds the schema."""
    approval = await rig.asked("pay")
    found = await rig.deps.requests.find(approval)
    loose = json.dumps({**found.declaration, "answer_schema": {}}).encode()

    def forge(connection: Connection) -> Any:
        where = BLOBS.c.sha256 == found.request.definition
        connection.execute(update(BLOBS).where(where).values(body=loose))
        return answer_objection(connection, found.request, "anything")

    refused = await rig.deps.store.run(forge)
    assert (refused.code, refused.why) == ("not_allowed", "no_answer")


@pytest.fixture
async def agent(client: Client, task_queue: str, store: Store) -> AsyncIterator[CallRig]:
    def catalog(ledger: Ledger) -> Catalog:
        tools = [refund_tool(answer_schema=SCHEMA), pay_tool(ledger, answer_schema=SCHEMA)]
        actors = [Actor(name="coder", model="", external=ExternalAgent(acts_for=("user:guest",)))]
        return catalog_of(tools, actors=actors, people=PEOPLE)

    async with call_rig(client, store, task_queue, catalog_of_ledger=catalog) as found:
        yield found


@table(
    "call", {"tool": "refund", "args": {"order": "A7", "euro": 70}}, {"tool": "pay", "args": {"amount": 70, "to": "Bo"}}
)
async def test_external_agent_reads_a_denial_with_the_answer(agent: CallRig, call: dict[str, Any]) -> None:
    proposed = (await agent.propose(**call)).json()
    sent = await agent.decide(proposed["id"], verdict="answered", answer=ANSWER)
    assert sent.json()["state"] == "answered"
    shown = await ended_as_denied(agent, proposed["id"])
    assert (shown["source"], shown["result"], shown["by"]) == ("answered", ANSWER, "approver")
    assert shown["reason"] == f"A person answered instead of a run: {json.dumps(ANSWER)}"
    used = await agent.use(proposed["id"])
    assert (used.status_code, used.json()["code"]) == (409, "denied")
    assert agent.rig.ledger.rows == []


async def ended_as_denied(agent: CallRig, call: str) -> dict[str, Any]:
    for pause in pauses():
        found = await agent.show(call)
        if found["state"] == "denied":
            return found
        await asyncio.sleep(pause)
    raise AssertionError("pauses never end")
