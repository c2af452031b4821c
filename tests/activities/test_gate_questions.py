import dataclasses
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activity_kit import (
    ARGS,
    MARK_KEY,
    TURN,
    about,
    asked,
    environment,
    free,
    pinned,
    request_of,
    task_for,
    worker_deps,
)
from some import some
from tables import table
from temporalio.exceptions import ApplicationError
from turn_fixtures import GUEST, Ledger, pay_tool

from signoff.activities.gate_activity import GateActivity
from signoff.activities.run_rules import is_of
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.approval_outcomes import HAPPENED_NOTE
from signoff.approvals.digest import digest_mark, doubt_digest, question_hash
from signoff.approvals.turn_question import turn_question
from signoff.contracts.activity_messages import GateDecision, GateTask
from signoff.contracts.call import IN_DOUBT_RULE, IN_DOUBT_TEXT, CallOutcome
from signoff.contracts.content import Content, Remark
from signoff.contracts.decision import Decision
from signoff.contracts.limits import INLINE_BYTES
from signoff.contracts.message import CallPart
from signoff.contracts.person import Principal
from signoff.formats.json_schema import SchemaProblem
from signoff.formats.replace import replace
from signoff.formats.tenant_limits import parse_tenant_limits
from signoff.languages.remarks import english
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.hooks import Correction, HookContext, Permission
from signoff.store.content_store import load
from signoff.store.freezes import Freezes
from signoff.store.store import Store
from signoff.store.tickets import ticket_key
from signoff.testing.questions import answer, keep, number_of

LEDGER = Ledger()
FORGED = "the gateway did not sign this request or requester"


async def gate_decision(
    deps: WorkerDeps, args: Any = ARGS, tool: str = "pay", call: str = "c1.1", **fields: Any
) -> GateDecision:
    part = CallPart(call=call, tool=tool, args=Content(inline=args))
    if "edit" in fields:
        await keep(deps.store, fields["edit"])
        fields["edit"] = await number_of(deps.store, fields["edit"])
    task = GateTask(**{"ctx": pinned(), "calls": (part,)} | fields)
    reply = await environment("signoff.gate", is_local=True).run(GateActivity(deps).gate, task)
    return reply.gate_decisions[0]


async def test_question_expires_no_later_than_the_time_of_the_caller(store: Store) -> None:
    now, numbers = datetime.now(UTC), itertools.count(1)

    async def time_to_answer(ask_within: float, asked_before: float = 0.0, **policy: Any) -> float:
        deps = dataclasses.replace(worker_deps(store, pay_tool(LEDGER, ApprovalPolicy(**policy))), clock=lambda: now)
        ctx = pinned(user=replace(GUEST, issued_at=now - timedelta(seconds=asked_before)))
        question = await gate_decision(deps, call=f"c{next(numbers)}.1", ctx=ctx, ask_within=ask_within)
        return request_of(question.request).timeout

    assert await time_to_answer(0.0) == 86_400.0
    assert await time_to_answer(600.0) == 600.0
    assert await time_to_answer(600.0, asked_before=100.0) == 500.0
    assert await time_to_answer(600.0, timeout=60.0) == 60.0
    assert await time_to_answer(600.0, on_timeout="escalate", escalate_to=("role:cfo",)) == 300.0
    assert 0.0 < await time_to_answer(600.0, asked_before=3_600.0) < 1.0


async def test_request_holds_the_timers_of_the_policy(store: Store) -> None:
    policy = ApprovalPolicy(
        remind_after=60,
        escalate_after=120,
        escalate_to=("role:cfo",),
        on_timeout="escalate",
        edit="off",
        allow_remember=True,
    )
    request = request_of((await gate_decision(worker_deps(store, pay_tool(LEDGER, policy)))).request)
    assert (request.remind_after, request.escalate_after, request.escalate_to) == (60.0, 120.0, ("role:cfo",))
    assert (request.on_timeout, request.edit, request.allow_remember) == ("escalate", "off", True)
    assert (request.kind, request.reminded, request.escalated, request.extended) == ("approval", 0, False, False)


async def test_equal_calls_have_the_same_action(store: Store) -> None:
    deps = worker_deps(store, pay_tool(LEDGER), pay_tool(LEDGER, name="wire"))
    actions = [
        (await gate_decision(deps, {"amount": 20, "to": "Ana"})).action,
        (await gate_decision(deps, {"to": "Ana", "amount": 20.0})).action,
        (await gate_decision(deps, {"amount": 21, "to": "Ana"})).action,
        (await gate_decision(deps, {"amount": 20, "to": "Ana"}, tool="wire")).action,
    ]
    assert actions[0] == actions[1] != ""
    assert len(set(actions)) == 3


async def test_calls_that_differ_only_in_remarks_have_the_same_action(store: Store) -> None:
    deps = worker_deps(store, pay_tool(LEDGER, remarks=("to",)), pay_tool(LEDGER, name="wire"))
    actions = [(await gate_decision(deps, {"amount": 20, "to": each})).action for each in ("Ana", "Ana Sousa")]
    assert actions[0] == actions[1] != (await gate_decision(deps, {"amount": 21, "to": "Ana"})).action
    assert "remarks" not in pay_tool(LEDGER).declaration


EDITABLE = ApprovalPolicy(auto_approve_if="true", edit="approve")


async def edited(deps: WorkerDeps, args: Any, **fields: Any) -> GateDecision:
    request = await asked(deps, deps.catalog.tool_view(pinned()).tool("pay"))
    return await gate_decision(deps, args, edit=about(request, edited_args=args, **fields))


async def test_edit_always_needs_approval(store: Store) -> None:
    deps = worker_deps(store, pay_tool(LEDGER, EDITABLE))
    large = {"amount": 1, "to": "é" * INLINE_BYTES}
    found = await edited(deps, large)
    request = request_of(found.request)
    assert (found.kind, request.revision, request.edit_of, request.edited_by) == ("ask", 2, 1, "approver")
    assert [row.value for row in request.before] == ["20", "Ana"]
    # The approver is not asked again: the edit answers the question.
    assert request.card.note == "Approver edited the arguments"
    assert request.args.blob is not None
    assert await load(store, request.args) == large


@table(
    ("change", "why"),
    ({"edited_args": None}, "another answer or the deadline settled this; open it again"),
    ({"question_hash": "0" * 64}, "this was asked again; open it again"),
    ({"revision": 7}, "another answer or the deadline settled this; open it again"),
    ({"key_id": "k"}, "the signature of this change does not hold"),
)
async def test_edit_that_does_not_match_the_question_is_rejected(store: Store, change: Any, why: str) -> None:
    deps = worker_deps(store, pay_tool(LEDGER, EDITABLE))
    request = await asked(deps, deps.catalog.tool_view(pinned()).tool("pay"))
    decision = replace(about(request, edited_args={"amount": 1}), **change)
    found = await gate_decision(deps, {"amount": 1}, edit=decision)
    assert (found.kind, found.request) == ("settled", None)
    assert found.outcome is not None
    assert (found.outcome.gate, found.outcome.value.inline) == ("approval", why)


async def test_edit_needs_a_policy_that_allows_it_and_the_same_approvers(store: Store) -> None:
    for policy, why in (
        (ApprovalPolicy(edit="off"), "these arguments cannot be edited; deny and name the change"),
        (
            ApprovalPolicy(edit="approve", route_to="args.amount > 5.0 ? ['user:ana'] : ['role:approvers']"),
            "other approvers decide about these arguments; deny, so that the agent can ask again",
        ),
    ):
        deps = worker_deps(store, pay_tool(LEDGER, policy))
        found = await edited(deps, {"amount": 1})
        assert some(found.outcome).value.inline == why


async def test_edit_of_a_tool_that_changed_is_rejected(store: Store) -> None:
    before, now = pay_tool(LEDGER, EDITABLE), pay_tool(LEDGER, EDITABLE, version="2")
    request = await asked(worker_deps(store, before), before)
    found = await gate_decision(worker_deps(store, now), {"amount": 1}, edit=about(request, edited_args={"amount": 1}))
    assert found.outcome is not None
    page_text = "the tool changed in the meantime; approve or deny, and it is asked again"
    assert found.outcome.value.inline == page_text


async def test_edited_question_keeps_the_escalation_approvers(store: Store) -> None:
    policy = replace(EDITABLE, escalate_to=("role:board",), escalate_after=0.0)
    found = request_of((await edited(worker_deps(store, pay_tool(LEDGER, policy)), {"amount": 1})).request)
    assert (found.approvers, found.escalate_after) == (("role:approvers", "role:board"), None)


def corrects(args: Any) -> list[SchemaProblem] | Correction:
    return [] if args["amount"] == 2 else Correction({"amount": 2}, "whole units only")


async def test_edited_arguments_need_approval_whenever_judged_again(store: Store) -> None:
    policy = ApprovalPolicy(auto_approve_if="true")
    for check, amount, note in ((None, 1, ""), (corrects, 2, "The arguments were corrected (`amount`): whole ")):
        deps = worker_deps(store, pay_tool(LEDGER, policy, validate_input=check))
        found = await gate_decision(deps, {"amount": 1}, changed_by="ana")
        request = request_of(found.request)
        assert (found.kind, request.args.inline) == ("ask", {"amount": amount})
        assert request.card.note.startswith(note)
        assert (await gate_decision(deps, {"amount": 1}, call="c2.1")).kind == "run"


async def denies(args: Any, context: HookContext) -> Permission:
    return Permission.deny("over the budget", can_override=True)


@table(
    ("tool", "gate", "message"),
    (
        {"validate_input": corrects},
        "schema",
        "the tool would reject these arguments. The arguments were corrected (`amount`): whole units only.",
    ),
    ({"check_permissions": denies}, "permission", "the tool does not permit these arguments: over the budget"),
    ({}, "schema", "the arguments of `pay` are not valid: `amount` must be of type number"),
)
async def test_edited_arguments_that_need_correction_are_rejected(
    store: Store, tool: dict[str, Any], gate: str, message: str
) -> None:
    before = pay_tool(LEDGER, EDITABLE, **tool)
    deps = worker_deps(store, before)
    request = await asked(deps, before)
    args = {"amount": 1} if tool else {"amount": "much"}
    found = await gate_decision(deps, args, edit=about(request, edited_args=args))
    assert (found.kind, found.request, code_of(found)) == ("settled", None, "input_invalid")
    assert found.outcome is not None
    assert (found.outcome.gate, found.outcome.value.inline) == (gate, message)


async def test_arguments_of_the_model_are_corrected_and_may_be_overridden(store: Store) -> None:
    deps = worker_deps(store, pay_tool(LEDGER, validate_input=corrects, check_permissions=denies))
    request = request_of((await gate_decision(deps, {"amount": 1})).request)
    assert (request.args.inline, request.rule_text) == (
        {"amount": 2},
        "over the budget; the tool always needs approval",
    )
    wrong = await gate_decision(deps, {"amount": "much"}, call="c1.2")
    assert str(some(wrong.outcome).value.inline).endswith(". Correct them and call it again")


async def test_edit_denied_by_a_rule_is_settled(store: Store) -> None:
    tool = pay_tool(LEDGER, ApprovalPolicy(deny_if="args.amount == 6.0", edit="approve"))
    denied = await edited(worker_deps(store, tool), {"amount": 6})
    assert (denied.kind, denied.request) == ("settled", None)
    assert some(denied.outcome).code == "denied"


@table("policy", False, True, ApprovalPolicy(deny_if="true"), ApprovalPolicy(auto_approve_if="true"))
async def test_in_doubt_question_is_asked_under_every_policy(policy: Any, store: Store) -> None:
    tool = pay_tool(LEDGER, policy)
    digest = task_for(tool).digest
    await begun(store, ticket_key(digest, 3))
    found = await gate_decision(worker_deps(store, tool), doubt=3, doubt_of=digest)
    request = request_of(found.request)
    assert (found.kind, found.action) == ("ask", "")
    assert (request.kind, request.digest, request.doubt_of) == ("in_doubt", doubt_digest(digest, 3), 3)
    assert (request.approvers, request.edit, request.allow_remember) == (("role:approvers",), "off", False)
    assert [row.name for row in request.card.rows] == list(ARGS)


async def test_in_doubt_question_keeps_the_terms_of_the_call(store: Store) -> None:
    terms = [{"when": "args.amount > 10", "approvers": ["user:cfo"], "reason": "it is much"}]
    then = ApprovalPolicy.model_validate({"terms": terms})
    first = request_of((await gate_decision(worker_deps(store, pay_tool(LEDGER, then)))).request)
    digest = task_for(pay_tool(LEDGER, then)).digest
    await begun(store, digest)
    assert (first.quorum, len(first.groups)) == (2, 2)
    for now in (then, ApprovalPolicy.model_validate({"terms": terms, "deny_if": "true"}), ApprovalPolicy()):
        deps = worker_deps(store, pay_tool(LEDGER, now))
        doubt = request_of((await gate_decision(deps, doubt=1, doubt_of=digest)).request)
        assert (doubt.quorum, doubt.groups, doubt.applied) == (2, first.groups, first.applied)


def code_of(found: GateDecision) -> str:
    return "" if found.outcome is None else found.outcome.code


async def test_denied_call_is_not_asked_again(store: Store) -> None:
    # The turn proposes the same action again, after a reset or on a claim: the denial still applies and names its
    # author. Before the fix other approvers were asked, without seeing the denial.
    deps = worker_deps(store, pay_tool(LEDGER))
    asked = request_of((await gate_decision(deps)).request)
    no = Decision(
        approval_id=asked.id, verdict="denied", subject="ana", revision=1, question_hash=asked.question_hash,
        reason="never", delivery_id="d1",
    )  # fmt: skip
    await answer(store, no)
    again = await gate_decision(deps)
    assert (again.kind, again.request) == ("settled", None)
    assert again.outcome is not None
    assert again.outcome.denied is not None
    assert (again.outcome.denied.decided_by, again.outcome.denied.reason) == ("ana", "never")
    assert request_of((await gate_decision(deps, {"amount": 21})).request).revision == 2


async def test_in_doubt_question_copies_the_fields_of_the_call(store: Store) -> None:
    policy = ApprovalPolicy(
        route_to="['user:ana']",
        confirm="type",
        quorum=2,
        veto=False,
        allow_remember=True,
        edit="approve",
        require_reason=True,
    )
    tool = pay_tool(LEDGER, policy)
    deps = worker_deps(store, tool)
    of_call = task_for(tool).digest
    first = request_of((await gate_decision(deps, agent_says="as you asked")).request)
    assert (first.approvers, first.confirm) == (("user:ana",), "type")
    assert (first.edit, first.allow_remember, first.require_reason) == ("approve", True, True)
    digest = doubt_digest(of_call, 1)
    notes = (Remark.of("doubt"),)
    await begun(store, of_call)
    found = await gate_decision(deps, agent_says="as you asked", doubt=1, doubt_of=of_call)
    request = request_of(found.request)
    moments = ("judged_at", "opened_at", "expires_at", "remind_at", "escalate_at")
    changed = replace(
        first,
        kind="in_doubt",
        revision=2,
        digest=digest,
        doubt_of=1,
        notes=notes,
        question_hash=question_hash(request),
        card=replace(first.card, note=english(notes), notes=notes, mark=digest_mark(digest, MARK_KEY)),
        rule=IN_DOUBT_RULE,
        rule_text="",
        confirm="",
        require_reason=False,
        edit="off",
        allow_remember=False,
        **{name: getattr(request, name) for name in moments},
    )
    result = turn_question(changed, CallPart(call="c1.1", tool="pay", args=changed.args))
    expected = GateDecision(
        call="c1.1", kind="ask", digest=digest, rule=IN_DOUBT_RULE, request=changed, question=result
    )
    assert found == expected


async def test_finished_call_returns_its_outcome_instead_of_a_question(store: Store) -> None:
    tool = pay_tool(LEDGER)
    deps = worker_deps(store, tool)
    digest = task_for(tool).digest
    await store.claim(digest, workflow=TURN.workflow_id, call="c1.1", tool="pay")
    done = CallOutcome(call="c1.1", tool="pay", code="ok", gate="execute", value=Content(inline="paid"))
    await store.record(digest, done)
    found = await gate_decision(deps)
    assert (found.kind, found.request, found.outcome) == ("settled", None, done)
    other = request_of((await gate_decision(deps, {"amount": 21})).request)
    assert other.card.note == "this call id already ran another tool: pay"
    assert request_of((await gate_decision(deps, {"amount": 21})).request).revision == other.revision


@table(
    ("user", "why"),
    (GUEST, "the requester is not signed"),
    (replace(GUEST, signature="c2lnbmVk"), FORGED),
    (replace(GUEST, key_id="k"), FORGED),
)
async def test_calls_of_an_unsigned_or_forged_requester_are_refused(store: Store, user: Principal, why: str) -> None:
    deps = worker_deps(store, pay_tool(LEDGER), free(LEDGER, name="look"), profile="production")
    calls = (
        CallPart(call="c1.1", tool="pay", args=Content(inline=ARGS)),
        CallPart(call="c1.2", tool="look", args=Content(inline={"amount": 1})),
    )
    task = GateTask(ctx=pinned(user=user), calls=calls)
    reply = await environment("signoff.gate", is_local=True).run(GateActivity(deps).gate, task)
    text = f"Not executed: {why}."
    assert reply.gate_decisions == tuple(
        GateDecision(
            call=call,
            kind="settled",
            outcome=CallOutcome(call=call, tool=tool, code="refused", gate="approval", value=Content(inline=text)),
        )
        for call, tool in (("c1.1", "pay"), ("c1.2", "look"))
    )


async def test_question_with_spent_answers_gets_a_new_revision(store: Store) -> None:
    # The store has no raw answer: asked under its old revision, the turn would wait for it forever. Once only:
    # the activity may be retried.
    deps = worker_deps(store, pay_tool(LEDGER))
    asked = [request_of((await gate_decision(deps, spent=spent)).request).revision for spent in (0, 0, 1, 1)]
    assert asked == [1, 1, 2, 2]


@table("lost", True, False)
async def test_pending_question_is_not_bypassed_by_a_newer_rule(store: Store, *, lost: bool) -> None:
    since = datetime.now(UTC) - timedelta(minutes=1) if lost else None
    question = request_of((await gate_decision(worker_deps(store, pay_tool(LEDGER)))).request)
    again = await gate_decision(worker_deps(store, free(LEDGER)), asked_since=since)
    assert (again.kind, request_of(again.request).id) == ("ask", question.id)
    other = await gate_decision(worker_deps(store, free(LEDGER)), call="c1.2", asked_since=since)
    assert other.kind == "run"


async def begun(store: Store, key: str, **claimed: Any) -> None:
    await store.claim(key, **{"workflow": TURN.workflow_id, "call": "c1.1", "tool": "pay"} | claimed)


async def test_in_doubt_question_needs_a_claimed_ticket_of_this_call(store: Store) -> None:
    tool = pay_tool(LEDGER)
    deps, digest = worker_deps(store, tool), task_for(tool).digest
    await begun(store, ticket_key(digest, 2), workflow="turn/main/s/other")
    await begun(store, ticket_key(digest, 3), call="c1.2")
    await begun(store, ticket_key(digest, 4))
    await store.void_claimed(ticket_key(digest, 4))
    other = task_for(tool, {**ARGS, "amount": 7}).digest
    await begun(store, other, call="c1.1")
    tries = [{"doubt": number, "doubt_of": digest} for number in (-1, 1, 2, 3, 4)]
    for each in (*tries, {"doubt": 1, "doubt_of": other}):
        settled = await gate_decision(deps, **each)
        assert (settled.kind, code_of(settled)) == ("settled", "refused")
        assert some(settled.outcome).value.inline == "Not executed: nobody has begun this."


async def test_running_tool_is_not_asked_about_as_in_doubt(store: Store) -> None:
    tool = pay_tool(LEDGER)
    deps, digest = worker_deps(store, tool), task_for(tool).digest
    await begun(store, digest, runs=True)
    with pytest.raises(ApplicationError, match="may still be running") as still:
        await gate_decision(deps, doubt=1, doubt_of=digest)
    assert 15 < some(still.value.next_retry_delay).total_seconds() < 21
    paid = CallOutcome(call="c1.1", tool="pay", code="ok", gate="execute", value=Content(inline="paid"))
    await store.record(digest, paid)
    assert (await gate_decision(deps, doubt=1, doubt_of=digest)).outcome == paid


async def test_in_doubt_question_is_skipped_if_frozen_or_answered(store: Store) -> None:
    tool = pay_tool(LEDGER)
    deps, digest = worker_deps(store, tool), task_for(tool).digest
    doubts: dict[str, Any] = {"doubt": 1, "doubt_of": digest}
    await begun(store, digest)
    await Freezes(store).freeze("main", reason="incident", by="adm")
    assert (await gate_decision(deps, **doubts)).request is None
    await Freezes(store).unfreeze("main")
    request = request_of((await gate_decision(deps, **doubts)).request)
    await answer(store, about(request, verdict="happened"))
    result = await gate_decision(deps, **doubts)
    assert (result.request, result.outcome and result.outcome.code) == (None, "ok")
    assert some(result.outcome).note == HAPPENED_NOTE


async def test_turn_idle_for_over_a_week_asks_no_approver(store: Store) -> None:
    # The request is more than a day old and the turn idle for a week: a restarted turn proposes no calls. Without this
    # limit, an attacker could propose calls forever in the name of an ended turn's requester.
    deps = worker_deps(store, pay_tool(LEDGER))

    async def asks(days: float, turn: str) -> GateDecision:
        user = replace(GUEST, issued_at=datetime.now(UTC) - timedelta(days=days + 1))
        part = CallPart(call="c1.1", tool="pay", args=Content(inline=ARGS))
        task = GateTask(ctx=pinned(user=user, turn=turn), calls=(part,))
        return (await environment("signoff.gate", is_local=True).run(GateActivity(deps).gate, task)).gate_decisions[0]

    assert (await asks(6, "rests")).kind == "ask"
    old = await asks(8, "gone")
    assert (old.kind, code_of(old)) == ("settled", "refused")
    assert some(old.outcome).value.inline == "Not executed: it is too long ago that anything was heard of this turn."
    await begun(store, "0" * 64, workflow="turn/main/s/works", call="c0.1")
    assert (await asks(8, "works")).kind == "ask"


async def test_in_doubt_call_without_approvers_stays_in_doubt(store: Store) -> None:
    deps = worker_deps(store, pay_tool(LEDGER, False), default_approvers=())
    for tool in ("gone", "pay"):
        settled = await gate_decision(deps, tool=tool, doubt=1, doubt_of="d" * 64)
        assert (settled.kind, settled.request) == ("settled", None)
        assert settled.outcome == CallOutcome(
            call="c1.1", tool=tool, code="in_doubt", gate="execute", value=Content(inline=IN_DOUBT_TEXT)
        )


def limited_deps(store: Store, limits: str, *tools: Any) -> WorkerDeps:
    return dataclasses.replace(worker_deps(store, *tools), tenant_limits=parse_tenant_limits(limits))


async def test_question_above_the_waiting_limit_is_not_asked(store: Store) -> None:
    deps = limited_deps(store, "waiting=1", pay_tool(LEDGER))
    waits = await gate_decision(deps)
    found = await gate_decision(deps, call="c1.2")
    assert (waits.kind, found.kind, found.request, code_of(found)) == ("ask", "settled", None, "too_many_calls")
    assert found.outcome is not None
    assert (found.outcome.type, found.outcome.gate) == ("ToolLimited", "approval")
    assert found.outcome.value.inline == (
        "Not asked: 1 requests of this tenant wait for approvers, which is the limit. Do without it, or say that it "
        "has to be asked later"
    )
    assert (await gate_decision(deps)).request == waits.request
    others = limited_deps(store, "acme: waiting=1", pay_tool(LEDGER))
    assert (await gate_decision(others, call="c1.2")).kind == "ask"


async def test_edit_replaces_its_question_within_the_waiting_limit(store: Store) -> None:
    deps = limited_deps(store, "waiting=1", pay_tool(LEDGER, ApprovalPolicy(edit="approve")))
    assert (await edited(deps, {"amount": 1})).kind == "ask"
    assert code_of(await gate_decision(deps, call="c1.2")) == "too_many_calls"


async def test_edit_above_a_lowered_waiting_limit_settles_its_call(store: Store) -> None:
    deps = worker_deps(store, pay_tool(LEDGER, ApprovalPolicy(edit="approve")))
    request = await asked(deps, deps.catalog.tool_view(pinned()).tool("pay"))
    assert (await gate_decision(deps, call="c1.2")).kind == "ask"
    deps = dataclasses.replace(deps, tenant_limits=parse_tenant_limits("waiting=1"))
    found = await gate_decision(deps, {"amount": 1}, edit=about(request, edited_args={"amount": 1}))
    assert code_of(found) == "too_many_calls"


async def test_in_doubt_question_ignores_the_waiting_limit(store: Store) -> None:
    tool = pay_tool(LEDGER)
    deps, digest = limited_deps(store, "waiting=1", tool), task_for(tool).digest
    assert (await gate_decision(deps, call="c1.2")).kind == "ask"
    assert code_of(await gate_decision(deps, doubt=1, doubt_of=digest)) == "refused"
    await begun(store, digest)
    assert (await gate_decision(deps, doubt=1, doubt_of=digest)).kind == "ask"


async def test_edit_asks_the_approvers_chosen_by_the_route(store: Store) -> None:
    policy = ApprovalPolicy(edit="approve", route_to="['user:ana']")
    found = await edited(worker_deps(store, pay_tool(LEDGER, policy)), {"amount": 1})
    assert request_of(found.request).approvers == ("user:ana",)


async def test_question_records_the_instant_of_judgement(store: Store) -> None:
    now = datetime.now(UTC)
    user = replace(GUEST, issued_at=now)
    tool = pay_tool(LEDGER)
    deps = dataclasses.replace(worker_deps(store, tool), clock=lambda: now)
    asked_now = await gate_decision(deps, ctx=pinned(user=user))
    assert request_of(asked_now.request).judged_at == now
    digest = task_for(tool, ctx=pinned(user=user)).digest
    await begun(store, digest)
    doubted = await gate_decision(deps, ctx=pinned(user=user), doubt=1, doubt_of=digest)
    assert request_of(doubted.request).judged_at == now


async def test_in_doubt_question_covers_a_call_of_an_earlier_definition(store: Store) -> None:
    before, now = pay_tool(LEDGER), pay_tool(LEDGER, version="2")
    request = request_of((await gate_decision(worker_deps(store, before))).request)
    await begun(store, request.digest)
    found = await gate_decision(worker_deps(store, now), doubt=1, doubt_of=request.digest)
    assert (found.kind, request_of(found.request).kind) == ("ask", "in_doubt")


def with_terms(*approvers: str) -> Any:
    terms = [{"when": "true", "approvers": [each], "reason": f"so says {each}"} for each in approvers]
    return pay_tool(LEDGER, ApprovalPolicy.model_validate({"terms": terms}))


async def test_in_doubt_question_keeps_the_terms_of_the_last_question(store: Store) -> None:
    first, last = with_terms("user:cfo"), with_terms("user:cto")
    await gate_decision(worker_deps(store, first))
    request = request_of((await gate_decision(worker_deps(store, last))).request)
    await gate_decision(worker_deps(store, with_terms("user:ceo", "user:coo")), call="c1.2")
    await begun(store, request.digest)
    doubt = await gate_decision(worker_deps(store, pay_tool(LEDGER)), doubt=1, doubt_of=request.digest)
    assert [each.reason for each in request_of(doubt.request).applied] == ["so says user:cto"]


async def test_later_ticket_is_noted_and_reported_like_the_first(store: Store) -> None:
    tool = pay_tool(LEDGER)
    deps, digest = worker_deps(store, tool), task_for(tool).digest
    await begun(store, ticket_key(digest, 2))
    asked_again = request_of((await gate_decision(deps)).request)
    assert asked_again.card.note == "this same call started before, and its outcome is unknown"
    done = CallOutcome(call="c1.1", tool="pay", code="ok", gate="execute", value=Content(inline="paid"))
    await store.record(ticket_key(digest, 2), done)
    assert (await gate_decision(deps)).outcome == done


async def test_card_names_every_tool_begun_under_the_call(store: Store) -> None:
    tools = [pay_tool(LEDGER), pay_tool(LEDGER, name="wire"), pay_tool(LEDGER, name="book")]
    deps = worker_deps(store, *tools)
    for tool, nonce in zip(tools, "abc", strict=True):
        await begun(store, task_for(tool).digest, tool=tool.name, nonce=nonce)
    assert request_of((await gate_decision(deps)).request).card.note == (
        "this same call started before, and its outcome is unknown; this call id already ran another tool: book, wire"
    )


def test_permit_never_matches_unserializable_arguments() -> None:
    tool = pay_tool(LEDGER)
    assert is_of(task_for(tool), tool, ARGS)
    assert not is_of(task_for(tool), tool, {"amount": float("nan")})


@table("spent", 0, 1)
async def test_unheard_answer_blocks_a_rule_and_a_heard_one_does_not(store: Store, spent: int) -> None:
    tool = pay_tool(LEDGER)
    since = datetime.now(UTC) - timedelta(minutes=1)
    request = request_of((await gate_decision(worker_deps(store, tool))).request)
    await answer(store, about(request))
    free_now = worker_deps(store, free(LEDGER))
    found = await gate_decision(free_now, asked_since=since, spent=spent)
    # Answered and delivered: the answer no longer blocks the call.
    assert found.kind == ("run" if spent else "ask")
    denied = worker_deps(store, pay_tool(LEDGER, ApprovalPolicy(deny_if="true")))
    ended = await gate_decision(denied, asked_since=since, spent=spent)
    assert (ended.kind, ended.request, code_of(ended)) == ("settled", None, "denied")
