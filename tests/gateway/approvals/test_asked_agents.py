import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from call_rig import CallRig, approval_of
from gateway_login import bearer, locked_rig, token_of
from gateway_rig import MONEY, PASSWORD, PEOPLE, SIGNER, GatewayRig, gateway_rig, react, turn_of
from polling import pauses
from some import some
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of, pay_tool, running_turns

from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.receipt import Receipt
from signoff.contracts.turn import TurnView
from signoff.engine.turn_client import TurnClient
from signoff.gateway.approvals.question_repeater import QuestionRepeater
from signoff.gateway.approvals.question_service import QuestionService
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.catalog import Catalog
from signoff.store.questions.questions import Questions, put_off_deadline
from signoff.store.store import Store
from signoff.testing.scripted_model import ScriptedModel

SPAN = 12.0
"""Seconds until the deadline of a hurried call."""
SAID = "It is <b>due</b>, with 0 tools and correct horse."


@pytest.fixture
async def rig(client: Client, store: Store) -> AsyncIterator[GatewayRig]:
    """The test repeats questions itself."""
    async with gateway_rig(client, store, f"asking-{uuid.uuid4().hex[:12]}") as found:
        yield found


async def ask(rig: GatewayRig, approval: str, text: str = "Why?", person: str = "ana") -> httpx2.Response:
    return await rig.http.post(f"/v1/approvals/{approval}/messages", params={"as": person}, json={"text": text})


async def heard(rig: GatewayRig, approval: str, count: int = 2) -> ApprovalRequest:
    async with asyncio.timeout(60):
        for pause in pauses():
            request = await rig.request(approval)
            if len(request.messages) >= count:
                return request
            await asyncio.sleep(pause)
    raise AssertionError


async def approve(rig: GatewayRig, request: ApprovalRequest, person: str = "ana", **fields: Any) -> dict[str, Any]:
    given = {"verdict": "approved", "revision": request.revision, "question_hash": request.question_hash}
    answer = await rig.decide(request.id, **given, **fields, **{"as": person})
    body: dict[str, Any] = answer.json()
    return body


async def test_agent_answers_an_approver_and_the_approval_names_the_thread(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    before = await rig.request(approval)
    answer = await ask(rig, approval, " Why this amount? ")
    assert (answer.status_code, answer.json()["status"]) == (200, "accepted")
    assert answer.json()["message"] == "The agent was asked. Its answer will appear with the request."
    request = await heard(rig, approval)
    assert [(each.by, each.text, each.subject, each.channel) for each in request.messages] == [
        ("approver", "Why this amount?", "ana", "api"), ("agent", SAID, "", ""),
    ]  # fmt: skip
    assert (before.thread, request.expires_at) == ("", before.expires_at)
    shown = (await rig.http.get(f"/v1/approvals/{approval}")).json()
    assert (shown["thread"], len(shown["messages"])) == (request.thread, 2)
    for thread in ({}, {"thread": "0" * 64}):
        stale = await approve(rig, request, **thread)
        assert (stale["code"], stale["why"]) == ("stale", "thread")
        assert "there is a newer message" in stale["message"]
    assert await rig.runs(approval) == 0
    assert (await approve(rig, request, thread=request.thread))["status"] == "accepted"
    result = await rig.turns.signoff.result(turn_of(approval))
    assert [call.code for call in result.calls] == ["ok"]
    assert await rig.runs(approval) == 1
    vote = (await rig.request(approval)).votes[0]
    assert vote.decision.thread == request.thread
    assert SIGNER.verifier().check_decision(vote.decision)
    entries = [each for each in await rig.records(approval) if each.kind == "message"]
    assert [each.facts["by"] for each in entries] == ["approver", "agent"]
    assert "Why this amount?" not in str([each.facts for each in entries])
    await rig.turns.replays(turn_of(approval))


def hurried(ledger: Ledger) -> Catalog:
    tool = pay_tool(ledger, ApprovalPolicy(timeout=SPAN), input_schema=MONEY)
    return catalog_of([tool], people=PEOPLE)


async def asked_soon(rig: GatewayRig) -> str:
    approval = await rig.asked("pay")
    assert (await ask(rig, approval)).status_code == 200
    return approval


def due_at(view: TurnView) -> datetime | None:
    return some(view.calls[0].approval).expires_at


async def test_question_near_the_deadline_leaves_time_for_the_decision(client: Client, store: Store) -> None:
    queue = f"hurried-{uuid.uuid4().hex[:12]}"
    async with gateway_rig(client, store, queue, catalog_of_ledger=hurried) as rig:
        answered, unanswered = await asyncio.gather(asked_soon(rig), asked_soon(rig))
        request = await heard(rig, answered)
        first = some(request.opened_at) + timedelta(seconds=SPAN)
        assert request.expires_at == first + timedelta(seconds=SPAN)
        await rig.turns.until(turn_of(answered), lambda view: due_at(view) == request.expires_at)
        await asyncio.sleep((first - datetime.now(UTC)).total_seconds() + 0.5)
        waiting = (await rig.http.get("/v1/approvals", params={"as": "ana"})).json()
        assert {each["id"] for each in waiting["approvals"]} == {answered, unanswered}
        assert (await approve(rig, request, thread=request.thread))["status"] == "accepted"
        assert (await rig.turns.signoff.result(turn_of(answered))).calls[0].code == "ok"
        assert (await rig.turns.signoff.result(turn_of(unanswered))).calls[0].code == "denied"
        late = await rig.request(unanswered)
        facts = [each.facts for each in await rig.records(unanswered) if each.kind == "message"]
        assert [each.get("expires_at") for each in facts] == [some(late.expires_at).isoformat(), None]
        assert (late.state, some(late.decided_at) - some(late.opened_at)) == ("timed_out", timedelta(seconds=2 * SPAN))
        await rig.turns.replays(turn_of(answered))
        await rig.turns.replays(turn_of(unanswered))


async def test_turn_that_heard_no_question_waits_until_the_moved_deadline(client: Client, store: Store) -> None:
    queue = f"unheard-{uuid.uuid4().hex[:12]}"
    async with gateway_rig(client, store, queue, catalog_of_ledger=hurried) as rig:
        approval = await rig.asked("pay")
        before = await rig.request(approval)
        await Questions(store).run_locked(
            approval, lambda connection, rows: put_off_deadline(connection, some(rows).latest, some(rows).now)
        )
        await asyncio.sleep((some(before.expires_at) - datetime.now(UTC)).total_seconds() + 0.5)
        assert (await approve(rig, before))["status"] == "accepted"
        assert (await rig.turns.signoff.result(turn_of(approval))).calls[0].code == "ok"
        assert "deadline" not in [each.facts.get("event") for each in await rig.records(approval)]
        await rig.turns.replays(turn_of(approval))


async def test_denial_needs_no_thread(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    await ask(rig, approval)
    await heard(rig, approval)
    assert (await rig.decide(approval, verdict="denied", revision=1)).json()["status"] == "accepted"


async def test_approval_of_a_card_without_the_newest_question_is_stale(rig: GatewayRig) -> None:
    approval = await rig.asked("both")
    read = await rig.request(approval)
    await ask(rig, approval)
    assert (await approve(rig, read, "bo"))["code"] == "stale"
    request = await heard(rig, approval)
    assert (await approve(rig, request, "bo", thread=request.thread))["status"] == "counted"


async def test_edit_needs_the_thread_too(rig: GatewayRig) -> None:
    approval = await rig.asked("typed")
    await ask(rig, approval)
    request = await heard(rig, approval)
    edit = {"edited_args": {"amount": 20, "currency": "EUR", "to": "Ana"}, "confirm": "20"}
    assert (await approve(rig, request, **edit))["why"] == "thread"
    assert (await approve(rig, request, **edit, thread=request.thread))["status"] == "accepted"


async def test_raw_approval_after_a_question_is_stale(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    await ask(rig, approval)
    await heard(rig, approval)
    body = {"approval_id": approval, "verdict": "approved", "subject": "ana"}
    handle = rig.turns.client.get_workflow_handle(turn_of(approval).workflow_id)
    receipt: Receipt = await handle.execute_update(names.DECIDE, body, result_type=Receipt)
    assert (receipt.status, receipt.why) == ("refused", "thread")


async def test_fourth_question_and_one_before_the_answer_are_refused(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    for number in range(3):
        assert (await ask(rig, approval, f"Why {number}?")).status_code == 200
        await heard(rig, approval, 2 * number + 2)
    fourth = await ask(rig, approval)
    assert (fourth.status_code, fourth.json()["why"]) == (403, "questions")
    assert "already asked three questions" in fourth.json()["message"]
    assert len((await rig.request(approval)).messages) == 6


async def test_strangers_requesters_and_late_approvers_cannot_ask(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    assert [(await ask(rig, approval, person=each)).status_code for each in ("bo", "guest")] == [403, 403]
    assert (await ask(rig, approval, "")).status_code == 422
    locked = locked_rig(rig)
    path, headers = f"/v1/approvals/{approval}/messages", bearer(await token_of(locked, "bo"))
    unread = await locked.http.post(path, json={"text": "Why?"}, headers=headers)
    assert (unread.status_code, unread.json()["code"]) == (404, "unknown")
    assert (await ask(rig, approval, " ")).json()["code"] == "malformed"
    assert (await rig.request(approval)).messages == ()
    await rig.decide(approval, verdict="denied", revision=1)
    assert (await ask(rig, approval)).json()["code"] == "already_decided"
    attempts = [each for each in await rig.records(approval) if each.key.startswith("turned-away/")]
    codes = [each.facts["receipt"] for each in attempts]
    assert codes == ["not_allowed", "not_allowed", "not_allowed", "malformed", "already_decided"]


async def test_question_to_an_ended_turn_is_refused_and_recorded(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    await rig.turns.client.get_workflow_handle(turn_of(approval).workflow_id).terminate()
    answer = await ask(rig, approval)
    assert (answer.status_code, answer.json()["why"]) == (409, "gone")
    assert "no longer waits for this request" in answer.json()["message"]
    assert (await rig.request(approval)).messages == ()
    assert "turned-away/" in [each.key[:12] for each in await rig.records(approval)]


async def test_secrets_of_the_call_are_masked_in_question_and_answer(rig: GatewayRig) -> None:
    approval = await rig.asked("login")
    await ask(rig, approval, f"Is it {PASSWORD}?")
    request = await heard(rig, approval)
    assert [each.text for each in request.messages] == ["Is it [hidden]?", SAID.replace(PASSWORD, "[hidden]")]


async def test_refusing_model_gives_an_empty_answer(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    await ask(rig, approval, "Do you refuse?")
    request = await heard(rig, approval)
    assert [each.text for each in request.messages] == ["Do you refuse?", ""]
    assert (await approve(rig, request, thread=request.thread))["status"] == "accepted"


async def test_question_without_an_answer_does_not_delay_the_call(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    await ask(rig, approval, "Are you busy?")
    request = await heard(rig, approval, 1)
    assert (await ask(rig, approval)).json()["why"] == "asked"
    assert (await approve(rig, request, thread=request.thread))["status"] == "accepted"
    result = await asyncio.wait_for(rig.turns.signoff.result(turn_of(approval)), 60)
    assert [call.code for call in result.calls] == ["ok"]
    assert len((await rig.request(approval)).messages) == 1


async def test_external_agent_cannot_be_asked(agent: CallRig) -> None:
    approval = approval_of((await agent.propose(200)).json()["id"])
    person = some(agent.rig.deps.people.find("approver", "main"))
    receipt = await QuestionService(agent.rig.deps).ask(approval, person, "Why?", "api")
    assert (receipt.status, receipt.why) == ("refused", "external")


async def test_question_missed_by_a_stopped_worker_is_answered_after_its_return(client: Client, store: Store) -> None:
    queue = f"stopped-{uuid.uuid4().hex[:12]}"
    async with gateway_rig(client, store, queue, dispatches=False) as rig:
        approval = await rig.asked("pay")
    away = dataclasses.replace(rig.deps, client=TurnClient(client, task_queue=queue, patience=timedelta(seconds=0.3)))
    person = some(rig.deps.people.find("ana", "main"))
    assert (await QuestionService(away).ask(approval, person, "Why?", "api")).status == "accepted"
    assert [each.text for each in (await rig.request(approval)).messages] == ["Why?"]
    async with running_turns(client, store, queue, rig.deps.catalog, ScriptedModel(react), verifier=SIGNER.verifier()):
        assert [each.text for each in (await heard(rig, approval)).messages] == ["Why?", SAID]


async def test_answer_of_a_stopped_worker_is_given_by_another_worker(client: Client, store: Store) -> None:
    queue, begun = f"lost-{uuid.uuid4().hex[:12]}", asyncio.Event()

    async def hang(request: CompletionRequest) -> Completion:
        if request.tools:
            return react(request)
        begun.set()
        return await asyncio.Future()

    async with gateway_rig(client, store, queue, dispatches=False, model=ScriptedModel(hang)) as rig:
        approval = await rig.asked("pay")
        await ask(rig, approval)
        await asyncio.wait_for(begun.wait(), 60)
    assert [each.text for each in (await rig.request(approval)).messages] == ["Why?"]
    async with running_turns(client, store, queue, rig.deps.catalog, ScriptedModel(react), verifier=SIGNER.verifier()):
        assert [each.text for each in (await heard(rig, approval)).messages] == ["Why?", SAID]


class Deaf(TurnClient):
    """Loses each wake for a question."""

    woken = 0

    async def announce(self, approval_id: str, revision: int) -> Receipt:
        self.woken += 1
        raise TimeoutError


async def test_lost_wake_is_repeated_after_ever_longer_pauses(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    deaf = Deaf(rig.turns.client, task_queue=rig.turns.task_queue)
    lost = dataclasses.replace(rig.deps, client=deaf)
    person = some(rig.deps.people.find("ana", "main"))
    assert (await QuestionService(lost).ask(approval, person, "Why?", "api")).status == "accepted"
    repeater = QuestionRepeater(lost)
    assert await repeater.step() == 0
    assert [await repeater.step(older_than=0) for _ in range(3)] == [1, 0, 0]
    assert deaf.woken == 2
    assert await QuestionRepeater(rig.deps).step(older_than=0) == 1
    assert [each.text for each in (await heard(rig, approval)).messages] == ["Why?", SAID]
    assert await QuestionRepeater(rig.deps).step(older_than=0) == 0
