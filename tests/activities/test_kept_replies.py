import asyncio
import dataclasses
import logging
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activity_kit import TURN, about, environment, pinned, request_of, worker_deps
from some import some
from tables import table
from turn_fixtures import Ledger, pay_tool

from signoff.activities import model_activity
from signoff.activities.gate_activity import GateActivity
from signoff.activities.model_activity import ModelActivity
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.card_notes import POLICY_CHANGED
from signoff.audit.log import AuditLog
from signoff.contracts.activity_messages import GateDecision, GateReply, GateTask, ModelReply, ModelTask, Tally
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.content import Content
from signoff.contracts.decision import GrantRequest
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import ApprovalKey
from signoff.contracts.message import CallPart, user_message
from signoff.formats.replace import replace
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor, Route, Step
from signoff.store.questions.questions import Questions
from signoff.store.store import Store
from signoff.testing.questions import answer
from signoff.testing.scripted_model import ScriptedModel, calls, say

SPAN = timedelta(minutes=3)


class Model:
    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, request: CompletionRequest) -> Completion:
        self.asked += 1
        made = calls(("pay", {"amount": 10 * self.asked, "to": "Ana"}))
        return dataclasses.replace(made, provider=b'{"n": %d}' % self.asked)


def deps_with(store: Store, model: Any, policy: Any = True) -> WorkerDeps:
    return worker_deps(store, pay_tool(Ledger(), policy), drivers={"scripted": ScriptedModel(model)})


def task(**fields: Any) -> ModelTask:
    return ModelTask(**{"ctx": pinned(), "completion": 1, "messages": (user_message("go"),)} | fields)


async def attempt(deps: WorkerDeps, run: str, number: int, span: timedelta = SPAN, **fields: Any) -> ModelReply:
    info = {"workflow_run_id": run, "attempt": number, "start_to_close_timeout": span}
    found: ModelReply = await environment("signoff.model", **info).run(ModelActivity(deps).model, task(**fields))
    return found


def question_in(reply: ModelReply) -> ApprovalRequest:
    (gate_decision,) = some(reply.gates).gate_decisions
    assert gate_decision.kind == "ask"
    return request_of(gate_decision.request)


async def amounts(store: Store) -> list[Any]:
    rows = await Questions(store).read(ApprovalKey(TURN, "c1.1").id)
    return [] if rows is None else [each.args.inline["amount"] for each in rows.questions]


async def test_second_attempt_returns_the_kept_reply_without_the_model(store: Store) -> None:
    # The worker is lost after the reply was kept: the model is called once, and calls and question stay the same.
    # Without `Completions.keep` the model was called twice and a second question was stored.
    model, run = Model(), uuid.uuid4().hex
    first = await attempt(deps_with(store, model), run, 1)
    again = await attempt(deps_with(store, model), run, 2)
    assert model.asked == 1
    assert again == first
    assert first.gates is not None
    assert [each.kind for each in first.gates.gate_decisions] == ["ask"]
    assert await amounts(store) == [10]
    assert [each.kind for each in await AuditLog(store).stream(TURN.workflow_id)].count("proposal") == 1


async def test_call_approved_before_the_retry_is_not_asked_again(store: Store) -> None:
    # The worker is lost after the gates asked, and an approver answers: the next attempt returns the same
    # question. Without `asked_since` it was asked a second time, with a second card.
    model, run = Model(), uuid.uuid4().hex
    first = await attempt(deps_with(store, model), run, 1)
    await answer(store, about(question_in(first)))
    assert await attempt(deps_with(store, model), run, 2) == first
    assert await amounts(store) == [10]


async def test_call_denied_before_the_retry_is_settled(store: Store) -> None:
    model, run = Model(), uuid.uuid4().hex
    first = question_in(await attempt(deps_with(store, model), run, 1))
    await answer(store, about(first, verdict="denied", reason="too much"))
    again = await attempt(deps_with(store, model), run, 2)
    outcome = some(some(again.gates).gate_decisions[0].outcome)
    assert outcome.denied is not None
    assert (outcome.code, outcome.denied.approval_id, outcome.denied.reason) == ("denied", first.id, "too much")
    assert await amounts(store) == [10]


@table("policy", True, ApprovalPolicy(quorum=2))
async def test_caller_supplied_time_does_not_bypass_a_denial(store: Store, policy: Any) -> None:
    # A call with a question about harmless arguments is judged again with the denied arguments. With the check of
    # `asked_since` before the check for denials, approvers were asked again without a note, and their approval ran the
    # call.
    denied = (CallPart(call="c1.1", tool="pay", args=Content(inline={"amount": 20, "to": "Ana"})),)
    bait = (CallPart(call="c9.1", tool="pay", args=Content(inline={"amount": 1, "to": "Ana"})),)
    again = (replace(denied[0], call="c9.1"),)
    deps = deps_with(store, Model(), policy)
    since = datetime(1970, 1, 1, tzinfo=UTC)

    async def judged(calls: tuple[CallPart, ...]) -> GateDecision:
        task = GateTask(ctx=pinned(), calls=calls, asked_since=since)
        found: GateReply = await environment("signoff.gate").run(GateActivity(deps).gate, task)
        return found.gate_decisions[0]

    await answer(store, about(request_of((await judged(denied)).request), verdict="denied"))
    assert (await judged(bait)).kind == "ask"
    gate_decision = await judged(again)
    assert (gate_decision.kind, gate_decision.outcome and gate_decision.outcome.code) == ("settled", "denied")


async def test_grant_given_during_a_retry_does_not_bypass_the_question(store: Store) -> None:
    # The approval also gives a grant for the next such call: the second attempt would run by it and leave its
    # question. Without the check of `asked_since`, the second attempt's verdict was `run`.
    model, run = Model(), uuid.uuid4().hex
    lasting = deps_with(store, model, ApprovalPolicy(allow_remember=True))
    first = await attempt(lasting, run, 1)
    await answer(store, about(question_in(first), remember=GrantRequest()))
    assert await attempt(lasting, run, 2) == first


async def test_changed_policy_does_not_bypass_the_question_on_retry(store: Store) -> None:
    model, run = Model(), uuid.uuid4().hex
    first = question_in(await attempt(deps_with(store, model), run, 1))
    await answer(store, about(first))
    again = question_in(await attempt(deps_with(store, model, False), run, 2))
    assert (first.revision, again.revision, again.notes) == (1, 2, (POLICY_CHANGED,))


async def test_question_from_before_a_reset_is_asked_again(store: Store) -> None:
    reply = calls(("pay", {"amount": 10, "to": "Ana"}))
    model = deps_with(store, lambda request: reply)
    await answer(store, about(question_in(await attempt(model, uuid.uuid4().hex, 1))))
    await asyncio.sleep(0.002)
    reset = uuid.uuid4().hex
    assert await attempt(model, reset, 1) == await attempt(model, reset, 2)
    assert await amounts(store) == [10, 10]


async def test_concurrent_attempts_return_the_same_kept_reply(store: Store) -> None:
    model, run = Model(), uuid.uuid4().hex
    found = await asyncio.gather(*(attempt(deps_with(store, model), run, 1) for _ in range(3)))
    assert model.asked == 3
    assert len({each.message.model_dump_json() for each in found}) == 1
    assert len(await amounts(store)) == 1


async def test_other_completions_and_runs_ask_the_model_again(store: Store) -> None:
    model, run = Model(), uuid.uuid4().hex
    await attempt(deps_with(store, model), run, 1)
    await attempt(deps_with(store, model), run, 2, completion=2)
    await attempt(deps_with(store, model), uuid.uuid4().hex, 2)
    assert model.asked == 3


async def test_reply_without_calls_is_not_kept(store: Store) -> None:
    run = uuid.uuid4().hex
    reply = await attempt(deps_with(store, lambda request: dataclasses.replace(say("hello"), provider=b"{}")), run, 1)
    assert (reply.gates, await model_activity.Completions(store).read(run, 1)) == (None, None)
    assert await store.get_blob(some(reply.message.provider).sha256) == b"{}"


async def test_provider_form_is_kept_with_the_reply(store: Store) -> None:
    reply = await attempt(deps_with(store, Model()), uuid.uuid4().hex, 1)
    assert await store.get_blob(some(reply.message.provider).sha256) == b'{"n": 1}'


async def test_gates_receive_tally_dry_run_and_text_of_the_turn(store: Store) -> None:
    seen: list[GateTask] = []

    async def gate(self: GateActivity, task: GateTask) -> GateReply:
        seen.append(task)
        return GateReply(gate_decisions=())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GateActivity, "gate", gate)
        tally = Tally(calls=7, per_tool={"pay": 7})
        model = deps_with(store, lambda request: calls(("pay", {"amount": 1}), text="for the flight"))
        reply = await attempt(model, uuid.uuid4().hex, 1, tally=tally, dry_run=True)
    (asked,) = seen
    assert (asked.tally, asked.dry_run, asked.agent_says) == (tally, True, "for the flight")
    assert (asked.calls, asked.ctx) == (reply.calls, pinned())


@table("error", StoreUnavailable("away"), ValueError("a fault"), TimeoutError())
async def test_failing_gates_leave_the_calls_to_the_turn(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async def gate(self: GateActivity, task: GateTask) -> GateReply:
        raise error

    monkeypatch.setattr(GateActivity, "gate", gate)
    with caplog.at_level(logging.WARNING):
        reply = await attempt(deps_with(store, Model()), uuid.uuid4().hex, 1)
    assert (reply.gates, len(reply.calls)) == (None, 1)
    assert caplog.messages == [f"calls of completion 1 are left to their turn: {type(error).__name__}"]


async def test_slow_gates_leave_the_calls_to_the_turn(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gate(self: GateActivity, task: GateTask) -> GateReply:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(GateActivity, "gate", gate)
    monkeypatch.setattr(model_activity, "GATES_SECONDS", 0.05)
    assert (await attempt(deps_with(store, Model()), uuid.uuid4().hex, 1)).gates is None


async def test_gates_are_skipped_if_the_attempt_is_nearly_over(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model may have used most of the time: a question started now would be asked again by the next attempt."""
    assert (await attempt(deps_with(store, Model()), uuid.uuid4().hex, 1, timedelta(seconds=49))).gates is None
    assert await amounts(store) == []
    assert (await attempt(deps_with(store, Model()), uuid.uuid4().hex, 1, timedelta(seconds=60))).gates is not None


async def test_gate_decisions_that_exceed_the_reply_size_are_omitted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_activity, "REPLY_BYTES", 100)
    reply = await attempt(deps_with(store, Model()), uuid.uuid4().hex, 1)
    assert (reply.gates, len(reply.calls)) == (None, 1)


async def test_second_attempt_judges_the_kept_calls_at_the_step_of_the_first(store: Store) -> None:
    steps = (Step(name="ask", collect={"city": None}, mode="only"), Step(name="buy", mode="only", tools=("pay",)))
    actors = [Actor(name="desk", model="scripted", routes=(Route(name="trip", steps=steps),))]
    model, run = Model(), uuid.uuid4().hex
    deps = worker_deps(store, pay_tool(Ledger()), drivers={"scripted": ScriptedModel(model)}, actors=actors)
    given = {"ctx": pinned(route="trip", extra={"data": {"city": "Porto"}})}
    first, again = [await attempt(deps, run, number, **given) for number in (1, 2)]
    assert (model.asked, again) == (1, first)
    assert some(first.place).step == "buy"
    assert [each.kind for each in some(first.gates).gate_decisions] == ["ask"]
    assert question_in(first).tool == "pay"
    moved = [each.facts["moved"] for each in await AuditLog(store).stream(TURN.workflow_id) if "moved" in each.facts]
    assert moved == ["buy"]
