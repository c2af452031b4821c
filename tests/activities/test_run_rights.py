"""A call runs by what holds where it runs: what people agreed to, and nothing that came to be in its way since."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activity_kit import about, asked, permit_for, run, summary, task_for, worker_deps
from turn_fixtures import Ledger, pay_tool

from signoff.contracts.activity_messages import ToolReply
from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.registry.hooks import HookContext, Permission
from signoff.registry.tool import Tool
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
    """The reply to a call that was asked about under `before` and approved, where it runs as `now` is; `shown` is for
    the question.
    """
    await answer(store, about(await asked(worker_deps(store, before, people=PEOPLE), before, **shown)))
    deps = worker_deps(store, now, people=PEOPLE)
    later = dataclasses.replace(deps, clock=lambda: datetime.now(UTC) + after)
    return await run(later, now, task_for(now, permit_for(now, kind="approved", decisions=())))


async def test_what_a_deployed_rule_would_have_denied_when_it_was_asked_is_judged_anew(store: Store) -> None:
    """Also where it would not deny any more: nobody would have been asked then."""
    ledger = Ledger()
    denies = ApprovalPolicy(deny_if=f"ctx.now.at < '{TURNING:%Y-%m-%dT%H:%M:%SZ}'", grant_ttl=604_800)
    before = pay_tool(ledger, ApprovalPolicy(grant_ttl=604_800))
    reply = await approved_then(store, before, pay_tool(ledger, denies), timedelta(hours=2))
    why = "by the policy of now this would have been denied when it was asked"
    assert (reply.again, reply.note, reply.outcome) == ("policy", why, None)
    assert ledger.rows == []


OBJECTS = "no payments to this address at present"


@pytest.mark.parametrize("objected", [True, False])
@pytest.mark.parametrize("objects", [True, False])
async def test_people_let_pass_what_they_were_shown_and_no_more(store: Store, *, objected: bool, objects: bool) -> None:
    """Who agreed to a call while nothing was objected to did not agree to override an objection of now."""
    ledger, now = Ledger(), {"objects": objected}

    async def check(args: dict[str, Any], context: HookContext) -> Permission:
        return Permission.deny(OBJECTS, can_override=True) if now["objects"] else Permission.allow()

    tool = pay_tool(ledger, check_permissions=check)
    deps = worker_deps(store, tool, people=PEOPLE)
    await answer(store, about(await asked(deps, tool)))
    now["objects"] = objects
    reply = await run(deps, tool, task_for(tool, permit_for(tool, kind="approved", decisions=())))
    if objects and not objected:
        assert (reply.again, reply.note) == ("policy", "this is not permitted by now, unless somebody overrides it")
        assert ledger.rows == []
    else:
        assert summary(reply) == ("ok", "paid")


async def test_another_objection_than_the_one_shown_is_shown_first(store: Store) -> None:
    """Words that people let pass are these words."""
    ledger, words = Ledger(), ["too late"]

    async def check(args: dict[str, Any], context: HookContext) -> Permission:
        return Permission.deny(words[-1], can_override=True)

    tool = pay_tool(ledger, check_permissions=check)
    deps = worker_deps(store, tool, people=PEOPLE)
    await answer(store, about(await asked(deps, tool)))
    words.append("too early")
    reply = await run(deps, tool, task_for(tool, permit_for(tool, kind="approved", decisions=())))
    assert (reply.again, ledger.rows) == ("policy", [])


async def test_what_somebody_denied_runs_by_no_rule_in_the_same_turn(store: Store) -> None:
    """Asked about and denied; then a deploy lets it run without anybody: this very call is refused."""
    ledger = Ledger()
    gated, free = pay_tool(ledger), pay_tool(ledger, False)
    await answer(store, about(await asked(worker_deps(store, gated, people=PEOPLE), gated), verdict="denied"))
    deps = worker_deps(store, free, people=PEOPLE)
    reply = await run(deps, free, task_for(free))
    assert summary(reply) == ("refused", "Not executed: somebody denied this.")
    assert ledger.rows == []


@pytest.mark.parametrize("ticket", [2, 3])
async def test_every_earlier_ticket_counts(store: Store, ticket: int) -> None:
    """A void one says nothing of those after it: what any of them came to is told, and one in doubt stops the next."""
    ledger = Ledger()
    tool = pay_tool(ledger, False)
    deps, task = worker_deps(store, tool), task_for(tool, ticket=ticket)
    who = {"workflow": "turn/main/s/t", "call": "c1.1", "tool": "pay"}
    keys = [ticket_key(task.permit.digest, number) for number in range(1, ticket)]
    for key in keys[:-1]:
        await store.void_unclaimed(key, **who)
    await store.claim(keys[-1], **who)
    assert summary(await run(deps, tool, task))[0] == "refused"
    done = CallOutcome(call="c1.1", tool="pay", code="ok", value=Content(inline="slow"))
    await store.record(keys[-1], done)
    assert (await run(deps, tool, task)).outcome == done
    assert ledger.rows == []


async def test_a_question_that_was_asked_anew_is_not_answered_by_what_was_read_before(store: Store) -> None:
    """An approved call whose question its turn took back runs nothing."""
    ledger = Ledger()
    tool = pay_tool(ledger)
    deps = worker_deps(store, tool, people=PEOPLE)
    request = await asked(deps, tool)
    await answer(store, about(request))
    await Questions(store).end(request.id, request.revision, "lapsed")
    reply = await run(deps, tool, task_for(tool, permit_for(tool, kind="approved", decisions=())))
    assert (reply.again, reply.note) == ("stale", "this is not asked any more")
    assert ledger.rows == []


@pytest.mark.parametrize("gated", [True, False])
async def test_a_call_about_which_people_are_asked_runs_by_no_rule(store: Store, *, gated: bool) -> None:
    """While its question stands: by a tool that nobody has to approve, and by a rule that lets it run."""
    ledger = Ledger()
    policy = ApprovalPolicy(auto_approve_if="true") if gated else False
    asks, runs = pay_tool(ledger), pay_tool(ledger, policy)
    await asked(worker_deps(store, asks, people=PEOPLE), asks)
    reply = await run(worker_deps(store, runs, people=PEOPLE), runs, task_for(runs))
    assert (reply.again, reply.note) == ("stale", "this was asked again, or is not asked any more")
    assert ledger.rows == []


async def test_a_rule_that_denies_by_now_ends_a_call_that_was_approved(store: Store) -> None:
    """In the words of that rule."""
    ledger = Ledger()
    tool = pay_tool(ledger)
    await answer(store, about(await asked(worker_deps(store, tool, people=PEOPLE), tool)))
    deps = worker_deps(store, tool, people=PEOPLE, policies=[GlobalRule(name="closed", rule="true", effect="deny")])
    reply = await run(deps, tool, task_for(tool, permit_for(tool, kind="approved", decisions=())))
    assert (reply.outcome is not None and reply.outcome.code, ledger.rows) == ("denied", [])
