import dataclasses
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activity_kit import ARGS, TURN, about, asked, run, summary, task_for, worker_deps
from tables import table
from turn_fixtures import Ledger, pay_tool

from signoff.activities.hooks.tool_hooks import judge_call
from signoff.activities.run_right import CHANGED, RunRights, call_of
from signoff.audit.log import AuditLog
from signoff.contracts.activity_messages import RunTask, ToolReply
from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor
from signoff.registry.hooks import HookContext, Permission
from signoff.registry.tool import Tool
from signoff.store.questions.answers import Answers
from signoff.store.questions.questions import Questions
from signoff.store.store import Store
from signoff.store.tickets import ticket_key
from signoff.testing.builders import a_person
from signoff.testing.questions import answer

PEOPLE = (a_person("approver"),)
TURNING = datetime.now(UTC) + timedelta(hours=1)


async def approved_then(
    store: Store, before: Tool, now: Tool, after: timedelta = timedelta(0), **shown: Any
) -> ToolReply:
    await answer(store, about(await asked(worker_deps(store, before, people=PEOPLE), before, **shown)))
    deps = worker_deps(store, now, people=PEOPLE)
    later = dataclasses.replace(deps, clock=lambda: datetime.now(UTC) + after)
    return await run(later, now, task_for(now, revision=1))


async def test_deployed_rule_that_denies_at_question_time_is_asked_again(store: Store) -> None:
    """With that rule, the call would never have been asked."""
    ledger = Ledger()
    denies = ApprovalPolicy(deny_if=f"ctx.now.at < '{TURNING:%Y-%m-%dT%H:%M:%SZ}'", grant_ttl=604_800)
    before = pay_tool(ledger, ApprovalPolicy(grant_ttl=604_800))
    reply = await approved_then(store, before, pay_tool(ledger, denies), timedelta(hours=2))
    why = "by the policy of now this would have been denied when it was asked"
    assert (reply.again, reply.note, reply.outcome) == ("policy", why, None)
    assert ledger.rows == []


OBJECTS = "no payments to this address at present"


@table("objected", True, False)
@table("objects", True, False)
async def test_approval_covers_only_the_objection_that_was_shown(
    store: Store, *, objected: bool, objects: bool
) -> None:
    ledger, now = Ledger(), {"objects": objected}

    async def check(args: dict[str, Any], context: HookContext) -> Permission:
        return Permission.deny(OBJECTS, can_override=True) if now["objects"] else Permission.allow()

    tool = pay_tool(ledger, check_permissions=check)
    deps = worker_deps(store, tool, people=PEOPLE)
    await answer(store, about(await asked(deps, tool)))
    now["objects"] = objects
    reply = await run(deps, tool, task_for(tool, revision=1))
    if objects and not objected:
        assert (reply.again, reply.note) == (
            "policy",
            "the permission check now objects: an approver has to override it",
        )
        assert ledger.rows == []
    else:
        assert summary(reply) == ("ok", "paid")


async def test_changed_objection_is_asked_again(store: Store) -> None:
    ledger, words = Ledger(), ["too late"]

    async def check(args: dict[str, Any], context: HookContext) -> Permission:
        return Permission.deny(words[-1], can_override=True)

    tool = pay_tool(ledger, check_permissions=check)
    deps = worker_deps(store, tool, people=PEOPLE)
    await answer(store, about(await asked(deps, tool)))
    words.append("too early")
    reply = await run(deps, tool, task_for(tool, revision=1))
    assert (reply.again, ledger.rows) == ("policy", [])


async def test_denied_call_does_not_run_by_a_rule_in_the_same_turn(store: Store, ledger: Ledger) -> None:
    gated, free = pay_tool(ledger), pay_tool(ledger, False)
    await answer(store, about(await asked(worker_deps(store, gated, people=PEOPLE), gated), verdict="denied"))
    deps = worker_deps(store, free, people=PEOPLE)
    reply = await run(deps, free, task_for(free))
    assert summary(reply) == ("refused", "Not executed: somebody denied this.")
    assert ledger.rows == []


@table("ticket", 2, 3)
async def test_claimed_earlier_ticket_blocks_a_later_one(store: Store, ticket: int) -> None:
    ledger = Ledger()
    tool = pay_tool(ledger, False)
    deps, task = worker_deps(store, tool), task_for(tool, ticket=ticket)
    who = {"workflow": "turn/main/s/t", "call": "c1.1", "tool": "pay"}
    keys = [ticket_key(task.digest, number) for number in range(1, ticket)]
    for key in keys[:-1]:
        await store.void_unclaimed(key, **who)
    await store.claim(keys[-1], **who)
    assert summary(await run(deps, tool, task))[0] == "refused"
    done = CallOutcome(call="c1.1", tool="pay", code="ok", value=Content(inline="slow"))
    await store.record(keys[-1], done)
    assert (await run(deps, tool, task)).outcome == done
    assert ledger.rows == []


async def test_closed_question_is_not_answered_by_its_old_answer(store: Store) -> None:
    ledger = Ledger()
    tool = pay_tool(ledger)
    deps = worker_deps(store, tool, people=PEOPLE)
    request = await asked(deps, tool)
    await answer(store, about(request))
    await Questions(store).end(request.id, request.revision, "lapsed")
    reply = await run(deps, tool, task_for(tool, revision=1))
    assert (reply.again, reply.note) == ("stale", "this request is closed")
    assert ledger.rows == []


@table("gated", True, False)
async def test_call_with_a_pending_question_does_not_run_by_a_rule(store: Store, *, gated: bool) -> None:
    ledger = Ledger()
    policy = ApprovalPolicy(auto_approve_if="true") if gated else False
    asks, runs = pay_tool(ledger), pay_tool(ledger, policy)
    await asked(worker_deps(store, asks, people=PEOPLE), asks)
    reply = await run(worker_deps(store, runs, people=PEOPLE), runs, task_for(runs))
    assert (reply.again, reply.note) == ("stale", "this was asked again, or is closed")
    assert ledger.rows == []


def changed_once_derived(monkeypatch: pytest.MonkeyPatch, change: Callable[[], Awaitable[object]]) -> None:
    derive = RunRights.derive

    async def derived(self: RunRights, task: RunTask) -> Any:
        found = await derive(self, task)
        await change()
        return found

    monkeypatch.setattr(RunRights, "derive", derived)


@table("change", "ended", "voided", "asked anew")
async def test_change_after_the_right_was_derived_stops_the_run(
    store: Store, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    ledger = Ledger()
    tool = pay_tool(ledger)
    deps = worker_deps(store, tool, people=PEOPLE)
    request = await asked(deps, tool)
    await answer(store, about(request))
    changes: dict[str, Callable[[], Awaitable[object]]] = {
        "ended": lambda: Questions(store).end(request.id, request.revision, "lapsed"),
        "voided": lambda: Answers(store).void(request.id, about(request).delivery_id),
        "asked anew": lambda: asked(deps, tool, {"amount": 21, "to": "Bo"}),
    }
    changed_once_derived(monkeypatch, changes[change])
    task = task_for(tool, revision=1)
    reply = await run(deps, tool, task)
    assert (reply.again, reply.note) == ("stale", "this was asked again, or is closed")
    assert (ledger.rows, await store.read_ticket(task.digest)) == ([], None)


async def test_voided_approval_runs_nothing(store: Store, ledger: Ledger) -> None:
    tool = pay_tool(ledger)
    deps = worker_deps(store, tool, people=PEOPLE)
    request = await asked(deps, tool)
    yes = about(request)
    await answer(store, yes)
    await Answers(store).void(request.id, yes.delivery_id)
    task = task_for(tool, revision=request.revision)
    reply = await run(deps, tool, task)
    assert (reply.outcome and reply.outcome.code, reply.note) == ("refused", "too few people have approved this")
    assert ledger.rows == []


async def test_answer_to_an_earlier_question_does_not_replace_the_current_one(store: Store, ledger: Ledger) -> None:
    before, tool = pay_tool(ledger, version="1"), pay_tool(ledger, version="2")
    deps = worker_deps(store, tool, people=PEOPLE)
    await answer(store, about(await asked(worker_deps(store, before, people=PEOPLE), before)))
    request = await asked(deps, tool)
    await answer(store, about(request))
    task = task_for(tool, revision=request.revision)
    assert request.revision == 2
    assert summary(await run(deps, tool, task))[0] == "ok"


@table("read_only", True, False)
async def test_question_asked_after_a_rule_approved_stops_the_call(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, read_only: bool
) -> None:
    ledger = Ledger()
    runs = pay_tool(ledger, ApprovalPolicy(auto_approve_if="true"), read_only=read_only)
    deps = worker_deps(store, runs, people=PEOPLE)
    changed_once_derived(monkeypatch, lambda: asked(deps, runs))
    reply = await run(deps, runs, task_for(runs))
    assert (reply.again, reply.note) == ("stale", "this was asked again, or is closed")
    assert ledger.rows == []


async def test_additional_answer_does_not_stop_an_approved_call(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger()
    tool = pay_tool(ledger)
    deps = worker_deps(store, tool, people=(*PEOPLE, a_person("ana")))
    request = await asked(deps, tool)
    await answer(store, about(request))
    changed_once_derived(monkeypatch, lambda: answer(store, about(request, subject="ana", delivery_id="late")))
    assert summary(await run(deps, tool, task_for(tool, revision=1)))[0] == "ok"


async def test_tool_name_shadowed_by_another_tool_runs_nothing(store: Store, ledger: Ledger) -> None:
    tool = pay_tool(ledger, False)
    desk = Actor(name="desk", model="scripted", shadowing="allow", own_tools=(pay_tool(ledger, False, title="Own"),))
    reply = await run(worker_deps(store, tool, actors=[desk]), tool, task_for(tool))
    assert (reply.again, reply.note, ledger.rows) == ("stale", CHANGED, [])


@table(("revision", "times"), (None, 1), (1, 2))
async def test_approved_call_ignores_the_cached_permission(store: Store, revision: Any, times: int) -> None:
    ledger, inputs = Ledger(), []

    async def check(args: dict[str, Any], context: HookContext) -> Permission:
        inputs.append(args)
        return Permission.allow()

    tool = pay_tool(ledger, revision is not None, check_permissions=check, cache_permission=60)
    deps = worker_deps(store, tool, people=PEOPLE)
    task = task_for(tool, revision=revision)
    call, now = call_of(task), deps.clock()
    await judge_call(deps.catalog, task.ctx, call, ARGS, deps.kinds, at=now, permissions=deps.permissions)
    if revision is not None:
        await answer(store, about(await asked(deps, tool)))
        # The test writes its question without the gates.
        del inputs[1:]
    assert summary(await run(deps, tool, task))[0] == "ok"
    assert len(inputs) == times


async def test_run_of_an_unsigned_requester_is_recorded_as_turn_entry(store: Store, ledger: Ledger) -> None:
    tool = pay_tool(ledger, False)
    reply = await run(worker_deps(store, tool, profile="production"), tool, task_for(tool))
    (record,) = await AuditLog(store).stream(TURN.workflow_id)
    assert summary(reply)[0] == "refused"
    assert (record.facts["by"], record.facts["refused"]) == ("turn", "the requester is not signed")
    assert ledger.rows == []
