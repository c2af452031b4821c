import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activity_kit import (
    ARGS,
    PLACE,
    TURN,
    WHO,
    MoodyStore,
    about,
    asked,
    begun,
    codes,
    environment,
    free,
    in_another_turn,
    pinned,
    run,
    summary,
    task_for,
    worker_deps,
)
from some import some
from sqlalchemy import insert
from tables import table
from temporalio.activity import ActivityCancellationDetails
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from turn_fixtures import GUEST, Ledger, pay_tool

from signoff.activities.run_handler import TRANSIENT
from signoff.activities.run_once import WORKERS_TRIED, RunOnce, tool_activities
from signoff.activities.run_right import CHANGED
from signoff.audit.log import AuditLog
from signoff.contracts.activity_messages import RunTask
from signoff.contracts.call import IN_DOUBT_TEXT, CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.limits import INLINE_BYTES
from signoff.contracts.person import Person
from signoff.contracts.usage import UsageLimit
from signoff.formats.json_schema import SchemaProblem
from signoff.formats.replace import replace
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.registry.actor import Actor, ExternalAgent
from signoff.registry.handler_adapters import run_elsewhere
from signoff.registry.hooks import Correction
from signoff.registry.registry import definition_hash
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolFailure, ToolResult
from signoff.store.content_store import load, to_content
from signoff.store.freezes import Freezes
from signoff.store.store import Store
from signoff.store.tables import RESTORATIONS
from signoff.store.tickets import ticket_key
from signoff.temporal.converter import DATA_CONVERTER
from signoff.testing.builders import a_person
from signoff.testing.questions import answer

DONE = CallOutcome(call="c1.1", tool="pay", code="ok", gate="execute", value=Content(inline="earlier"))


async def test_allowed_call_runs_once_and_keeps_its_outcome(store: Store, ledger: Ledger) -> None:
    tool = free(ledger)
    deps, task = worker_deps(store, tool), task_for(tool)
    reply = await run(deps, tool, task)
    assert summary(reply) == ("ok", "paid")
    assert (reply.outcome.call, reply.outcome.tool, reply.outcome.gate) == ("c1.1", "pay", "execute")
    assert ledger.rows == [("pay", ARGS, task.digest)]
    ticket = await store.read_ticket(task.digest)
    assert (ticket.workflow, ticket.call, ticket.tool, ticket.state) == (*WHO.values(), "done")
    assert ticket.outcome == reply.outcome
    assert await run(deps, tool, task) == reply
    assert len(ledger.rows) == 1


async def test_ticket_holds_the_nonce_of_the_turn(store: Store, ledger: Ledger) -> None:
    tool = free(ledger)
    task = in_another_turn(tool)
    assert (await run(worker_deps(store, tool), tool, task)).outcome.code == "ok"
    assert some(await store.read_ticket(task.digest)).nonce == task.ctx.user.nonce == "later"


async def test_only_calls_begun_after_a_restored_backup_run(store: Store, ledger: Ledger) -> None:
    tool = free(ledger)
    deps = worker_deps(store, tool)
    await store.run(lambda connection: connection.execute(insert(RESTORATIONS)))

    def task_begun(minutes: int) -> RunTask:
        user = replace(GUEST, issued_at=datetime.now(UTC) + timedelta(minutes=minutes), nonce=str(minutes))
        return task_for(tool, ctx=pinned(user=user))

    with pytest.raises(ApplicationError) as raised:
        await run(deps, tool, task_begun(-1))
    assert (raised.value.type, ledger.rows) == ("InDoubt", [])
    fresh = replace(task_begun(1), args=Content(inline=ARGS | {"amount": 7}))
    fresh = replace(fresh, digest=task_for(tool, ARGS | {"amount": 7}, ctx=fresh.ctx).digest)
    assert (await run(deps, tool, fresh)).outcome.code == "ok"


@table(
    ("info", "why"),
    ({"workflow_type": None}, "this tool runs only inside a turn"),
    ({"workflow_type": "Foreign"}, "this tool runs only inside a turn"),
    ({"workflow_id": None}, "its task names another turn"),
    ({"workflow_id": "turn/main/s/other"}, "its task names another turn"),
    ({"activity_id": "c1.2"}, "its task names another call"),
    ({"activity_type": "refund"}, "its task names another call"),
)
async def test_caller_other_than_the_turn_of_the_permit_is_refused(
    store: Store, caplog: pytest.LogCaptureFixture, info: Any, why: str
) -> None:
    ledger = Ledger()
    tool = free(ledger)
    task = task_for(tool)
    reply = await run(worker_deps(store, tool), tool, task, environment("pay", **info))
    assert summary(reply) == ("refused", f"Not executed: {why}.")
    assert caplog.messages[0].startswith(f"refused to run pay: {why}")
    assert ledger.rows == []
    assert await store.read_ticket(task.digest) is None


async def test_task_for_another_tool_is_refused(store: Store, ledger: Ledger) -> None:
    tool, other = free(ledger), free(ledger, name="refund")
    deps = worker_deps(store, tool, other)
    reply = await run(deps, tool, task_for(other), environment("refund"))
    assert summary(reply) == ("refused", "Not executed: its task names another tool.")
    assert ledger.rows == []


async def test_handler_of_an_approved_call_receives_its_decision(store: Store) -> None:
    seen: list[ToolContext] = []

    async def handler(args: dict[str, Any], ctx: ToolContext) -> str:
        seen.append(ctx)
        return "done"

    tool = pay_tool(Ledger(), ApprovalPolicy(quorum=2), handler=handler)
    ctx = pinned(route="billing", step="2", channel="web")
    task = task_for(tool, ctx=ctx, revision=1)
    task = replace(task, budget_chars=77)
    deps = worker_deps(store, tool, people=[a_person("approver"), a_person("ana"), a_person("guest", roles=())])
    request = await asked(deps, tool, ctx=ctx)
    await answer(store, about(request))
    await answer(store, about(request, subject="ana", reason="ok"))
    assert summary(await run(deps, tool, task, environment(attempt=3))) == ("ok", "done")
    assert seen == [
        ToolContext(
            actor_name="desk",
            session_id="s",
            turn_id="t",
            call_id="c1.1",
            tenant_id="main",
            user_id="guest",
            person_id="guest",
            user=GUEST,
            idempotency_key=task.digest,
            approval_decision="approved",
            approval_reason="ok",
            decided_by="approver, ana",
            attempt=3,
            result_budget_chars=77,
            route="billing",
            step="2",
        )
    ]


async def test_handler_of_an_automatic_call_receives_no_decision(store: Store) -> None:
    seen: list[ToolContext] = []

    async def handler(args: dict[str, Any], ctx: ToolContext) -> None:
        seen.append(ctx)

    tool = free(Ledger(), handler=handler)
    assert summary(await run(worker_deps(store, tool), tool, task_for(tool))) == ("ok", "null")
    assert (seen[0].approval_decision, seen[0].approval_reason, seen[0].decided_by) == (None, "", "")
    assert (seen[0].attempt, seen[0].result_budget_chars) == (1, 80_000)


async def test_task_without_enough_decisions_is_refused(store: Store, ledger: Ledger) -> None:
    tool = pay_tool(ledger)
    deps, task = worker_deps(store, tool), task_for(tool, revision=1)
    nobody = await run(deps, tool, task_for(tool, revision=1))
    assert nobody.outcome.value.inline == "Not executed: no approver was asked about this."
    await asked(deps, tool)
    reply = await run(deps, tool, task)
    assert (codes([reply]), reply.again) == (["refused"], "")
    assert reply.outcome.value.inline == "Not executed: too few people have approved this."
    assert reply.note == "too few people have approved this"
    assert ledger.rows == []


@table(
    ("args", "code", "gate"),
    ([], "input_invalid", "shape"),
    ({"amount": 2**60}, "input_invalid", "shape"),
    ({"amount": "much"}, "input_invalid", "schema"),
)
async def test_arguments_are_judged_again_at_run_time(store: Store, args: Any, code: str, gate: str) -> None:
    ledger = Ledger()
    tool = free(ledger)
    reply = await run(worker_deps(store, tool), tool, task_for(tool, args, digest=task_for(tool).digest))
    assert (reply.outcome.code, reply.outcome.gate, reply.outcome.call) == (code, gate, "c1.1")
    assert ledger.rows == []


@table(
    ("change", "fields", "expected"),
    ({"description": "Pay anybody"}, {}, ("ok", "")),
    ({"requires_approval": ApprovalPolicy(auto_approve_if="true")}, {}, ("ok", "")),
    ({"version": "2"}, {}, ("", "stale")),
    ({"idempotent": True}, {}, ("", "stale")),
    ({"requires_approval": ApprovalPolicy(deny_if="true")}, {}, ("denied", "")),
    ({}, {"policies": [GlobalRule(name="r", rule="true", effect="deny", reason="frozen")]}, ("denied", "")),
    ({}, {"policies": [GlobalRule(name="r", rule="true", effect="hide")]}, ("not_available", "")),
    ({}, {"policies": [GlobalRule(name="r", rule="true", effect="require_approval")]}, ("ok", "")),
    ({}, {"actors": []}, ("not_available", "")),
)
async def test_catalog_changed_after_the_question_is_judged_again(
    store: Store, change: Any, fields: Any, expected: tuple[str, str]
) -> None:
    ledger = Ledger()
    before = pay_tool(ledger)
    after = pay_tool(ledger, **({"requires_approval": True} | change))
    task = task_for(before, revision=1)
    await answer(store, about(await asked(worker_deps(store, before), before)))
    reply = await run(worker_deps(store, after, **fields), after, task)
    assert (reply.outcome.code if reply.outcome and not reply.again else "", reply.again) == expected
    assert len(ledger.rows) == (expected[0] == "ok")
    if expected[0] == "denied":
        assert reply.outcome.denied.source == "policy"


async def test_removed_tool_is_not_available(store: Store, ledger: Ledger) -> None:
    gone = free(ledger)
    reply = await run(worker_deps(store, free(ledger, name="look")), gone, task_for(gone))
    assert (reply.outcome.code, reply.outcome.gate, ledger.rows) == ("not_available", "resolve", [])


async def test_automatic_call_that_now_needs_approval_is_judged_again(store: Store, ledger: Ledger) -> None:
    gated, tool = pay_tool(ledger), free(ledger)
    note = "the policy changed before this ran"
    reply = await run(worker_deps(store, gated), gated, task_for(gated))
    assert (reply.again, reply.note) == ("policy", note)
    fired = [Person(id="guest", active=False)]
    reply = await run(worker_deps(store, tool, people=fired), tool, task_for(tool))
    assert (reply.again, reply.note) == ("policy", note)
    edited = pinned(user=replace(GUEST, tier="trusted"))
    reply = await run(worker_deps(store, tool), tool, task_for(tool, ctx=edited))
    assert (reply.again, reply.note) == ("policy", note)
    assert ledger.rows == []


async def test_stored_arguments_are_loaded_for_the_handler(store: Store, ledger: Ledger) -> None:
    tool = free(ledger)
    args = {"amount": 1, "to": "é" * INLINE_BYTES}
    content = await to_content(store, args, PLACE)
    assert content.blob is not None
    task = replace(task_for(tool, args), args=content)
    assert summary(await run(worker_deps(store, tool), tool, task))[0] == "ok"
    assert ledger.rows[0][1] == args


# Tickets


async def test_begun_call_without_an_outcome_is_in_doubt(store: Store, ledger: Ledger) -> None:
    tool = free(ledger)
    task = task_for(tool)
    await store.claim(task.digest, **WHO)
    with pytest.raises(ApplicationError, match=IN_DOUBT_TEXT) as doubt:
        await run(worker_deps(store, tool), tool, task)
    assert (doubt.value.type, doubt.value.non_retryable) == ("InDoubt", True)
    assert ledger.rows == []


async def test_idempotent_tool_runs_again_with_the_same_key(store: Store, ledger: Ledger) -> None:
    tool = free(ledger, idempotent=True)
    task = task_for(tool)
    await store.claim(task.digest, **WHO)
    assert summary(await run(worker_deps(store, tool), tool, task)) == ("ok", "paid")
    assert [row[2] for row in ledger.rows] == [task.digest]
    assert (await store.read_ticket(task.digest)).state == "done"


CLOSED: list[tuple[Any, Any]] = [
    ({"policies": [GlobalRule(name="r", rule="true", effect="hide")]}, {}),
    ({"policies": [GlobalRule(name="r", rule="true", effect="deny")]}, {}),
    ({"actors": []}, {}),
    ({}, {"version": "2"}),
    ({}, {"requires_approval": True}),
]


@table("idempotent", True, False)
@table(("fields", "change"), *CLOSED)
async def test_later_obstacle_keeps_a_begun_call_in_doubt(
    store: Store, fields: Any, change: Any, idempotent: bool
) -> None:
    ledger = Ledger()
    before = free(ledger, idempotent=idempotent)
    after = pay_tool(ledger, **({"requires_approval": False, "idempotent": idempotent} | change))
    task = task_for(before)
    await store.claim(task.digest, **WHO)
    with pytest.raises(ApplicationError, match=IN_DOUBT_TEXT) as doubt:
        await run(worker_deps(store, after, **fields), after, task)
    assert (doubt.value.type, doubt.value.non_retryable) == ("InDoubt", True)
    await store.record(task.digest, DONE)
    assert (await run(worker_deps(store, after, **fields), after, task)).outcome == DONE
    assert ledger.rows == []


async def test_refusal_keeps_a_begun_call_in_doubt(store: Store, ledger: Ledger) -> None:
    tool = free(ledger)
    strict = worker_deps(store, tool, profile="production")
    for deps, number in ((strict, 1), (worker_deps(store, tool), 2)):
        task = task_for(tool, ticket=number)
        key = ticket_key(task.digest, number)
        assert (await run(deps, tool, task)).outcome.code == "refused"
        await store.claim(key, **WHO)
        with pytest.raises(ApplicationError, match=IN_DOUBT_TEXT) as doubt:
            await run(deps, tool, task)
        assert doubt.value.type == "InDoubt"
    await store.record(key, DONE)
    assert (await run(deps, tool, task)).outcome == DONE
    assert ledger.rows == []


async def test_removed_tool_keeps_a_begun_call_in_doubt(store: Store) -> None:
    gone = free(Ledger())
    absent = tool_activities(worker_deps(store, free(Ledger(), name="look")))[-1]
    env, task = environment("pay", attempt=WORKERS_TRIED), task_for(gone)
    env.payload_converter = DATA_CONVERTER.payload_converter
    given = [RawValue(env.payload_converter.to_payload(task))]
    assert (await env.run(absent, given)).again == "stale"
    await store.claim(task.digest, **WHO)
    with pytest.raises(ApplicationError, match=IN_DOUBT_TEXT) as doubt:
        await env.run(absent, given)
    assert (doubt.value.type, doubt.value.non_retryable) == ("InDoubt", True)
    await store.record(task.digest, DONE)
    assert (await env.run(absent, given)).outcome == DONE
    other = environment("pay", attempt=WORKERS_TRIED, workflow_id="turn/main/s/other")
    other.payload_converter = env.payload_converter
    assert (await other.run(absent, given)).again == "stale"


async def test_ticket_of_another_call_does_not_affect_this_one(store: Store, ledger: Ledger) -> None:
    tool = free(ledger)
    deps = worker_deps(store, tool, policies=[GlobalRule(name="r", rule="true", effect="hide")])
    task = task_for(tool)
    for other in ({"workflow": "turn/main/s/other"}, {"call": "c1.2"}, {"tool": "look"}):
        task = replace(task, digest=f"{other}")
        await store.claim(task.digest, **(WHO | other))
        reply = await run(deps, tool, task)
        assert (reply.outcome.code, reply.outcome.gate) == ("not_available", "tag_policy")
    await store.void_unclaimed(task.digest, **WHO)
    assert (await run(deps, tool, task)).outcome.gate == "tag_policy"
    assert (await run(deps, tool, replace(task, ticket=0))).outcome.gate == "tag_policy"


@table("idempotent", True, False)
async def test_void_ticket_never_runs(store: Store, idempotent: bool) -> None:
    ledger = Ledger()
    tool = free(ledger, idempotent=idempotent)
    task = task_for(tool)
    await store.void_unclaimed(task.digest, **WHO)
    reply = await run(worker_deps(store, tool), tool, task)
    assert (reply.outcome, reply.again, reply.note) == (None, "lapsed", "the approval was not used in time")
    assert ledger.rows == []


async def test_next_ticket_needs_all_earlier_ones_voided(store: Store, ledger: Ledger) -> None:
    tool = free(ledger)
    deps, first = worker_deps(store, tool), task_for(tool)
    third = replace(first, ticket=3)
    refused = ("refused", "Not executed: an earlier ticket of this call was not given up.")
    assert summary(await run(deps, tool, third)) == refused
    await store.void_unclaimed(first.digest, **WHO)
    assert summary(await run(deps, tool, third)) == refused
    await store.void_unclaimed(ticket_key(first.digest, 2), **WHO)
    assert summary(await run(deps, tool, third)) == ("ok", "paid")
    assert ledger.rows[0][2] == f"{first.digest}/3"
    for ticket in (0, -1):
        assert summary(await run(deps, tool, replace(first, ticket=ticket))) == refused
    assert len(ledger.rows) == 1


@table("read_only", True, False, ids=["reads", "acts"])
@table("recorded", True, False, ids=["recorded", "claimed"])
async def test_later_ticket_is_refused_while_an_earlier_one_is_in_doubt(
    store: Store, recorded: bool, read_only: bool
) -> None:
    ledger = Ledger()
    tool = free(ledger, read_only=read_only, usage_limit=UsageLimit(9, "tenant", 60.0))
    task = task_for(tool, ticket=2)
    await store.claim(task.digest, **WHO)
    if recorded:
        await store.record(task.digest, CallOutcome(call="c1.1", tool="pay", code="in_doubt"))
    code, text = summary(await run(worker_deps(store, tool), tool, task))
    assert (code, text) == (
        "refused",
        "Not run again: it is not known whether an earlier try of this call happened, and too few people have said "
        "that it did not; do not repeat it.",
    )
    assert ledger.rows == []


@table(("fields", "change"), *CLOSED)
async def test_finished_earlier_ticket_replaces_a_refusal_with_its_outcome(
    store: Store, fields: Any, change: Any
) -> None:
    ledger = Ledger()
    before = free(ledger)
    after = pay_tool(ledger, **({"requires_approval": False} | change))
    task = task_for(before, ticket=2)
    await store.claim(task.digest, **WHO)
    await store.record(task.digest, CallOutcome(call="c1.1", tool="pay", code="in_doubt"))
    reply = await run(worker_deps(store, after, **fields), after, task)
    assert reply.outcome is None or reply.outcome.code != "in_doubt", "of that people have said something"
    await store.record(task.digest, DONE)
    assert (await run(worker_deps(store, after, **fields), after, task)).outcome == DONE
    assert ledger.rows == []


@table("recorded", True, False, ids=["recorded", "claimed"])
async def test_call_begun_before_its_tool_became_read_only_is_not_rerun(store: Store, recorded: bool) -> None:
    ledger = Ledger()
    acts, reads = free(ledger), free(ledger, read_only=True)
    task = task_for(acts)
    done = CallOutcome(call="c1.1", tool="pay", code="ok", value=Content(inline="paid"))
    assert (await run(worker_deps(store, reads), reads, task)).again == "stale"
    await store.claim(task.digest, **WHO)
    if recorded:
        await store.record(task.digest, done)
        assert (await run(worker_deps(store, reads), reads, task)).outcome == done
    else:
        with pytest.raises(ApplicationError) as doubt:
            await run(worker_deps(store, reads), reads, task)
        assert doubt.value.type == "InDoubt"
    assert ledger.rows == []


async def test_begun_read_that_may_not_run_now_is_refused(store: Store) -> None:
    reads = free(Ledger(), read_only=True, usage_limit=UsageLimit(9, "tenant", 60.0))
    task = task_for(reads)
    await store.claim(task.digest, **WHO)
    deps = worker_deps(store, reads, profile="production")
    assert summary(await run(deps, reads, task))[0] == "refused"


async def test_read_only_tool_needs_no_ticket(store: Store, ledger: Ledger) -> None:
    tool = free(ledger, read_only=True)
    task = task_for(tool, ticket=2)
    replies = [await run(worker_deps(store, tool), tool, task) for _ in range(2)]
    assert codes(replies) == ["ok", "ok"]
    assert [row[2] for row in ledger.rows] == ["", ""]
    assert await store.read_ticket(task.digest) is None


# Results and errors of handlers


def answering(answer: Any, **fields: Any) -> Any:
    async def handler(args: dict[str, Any], ctx: ToolContext) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return free(Ledger(), handler=handler, **fields)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("unspeakable")


@table(
    ("answer", "code", "text"),
    ("words", "ok", "words"),
    ({"a": [1, None]}, "ok", '{"a":[1,null]}'),
    (ToolResult("told", structured={"id": 7}, cost=0.5), "ok", "told"),
    (ToolFailure("no such flight"), "execution_failed", "no such flight"),
    (ToolFailure(404), "execution_failed", "404"),  # type: ignore[arg-type]
    (ValueError("it broke"), "execution_failed", "it broke"),
    (ValueError(), "execution_failed", "ValueError"),
    (ValueError("\ud800"), "execution_failed", "?"),
    (ToolFailure("\ud800"), "execution_failed", "?"),
    (ConnectionError("gone"), "execution_failed", "gone"),
    (Mute(), "execution_failed", "Mute"),
)
async def test_handler_result_becomes_one_outcome(store: Store, answer: Any, code: str, text: str) -> None:
    tool = answering(answer)
    task = task_for(tool)
    reply = await run(worker_deps(store, tool), tool, task)
    assert summary(reply) == (code, text)
    assert (await store.read_ticket(task.digest)).outcome == reply.outcome
    if isinstance(answer, ToolResult):
        assert (reply.outcome.structured.inline, reply.outcome.cost) == ({"id": 7}, 0.5)
    else:
        assert (reply.outcome.structured, reply.outcome.cost) == (None, 0.0)


@pytest.mark.row("E20")
async def test_exception_is_a_failed_execution_with_its_message(store: Store) -> None:
    tool = answering(KeyError("no such account"))
    reply = await run(worker_deps(store, tool), tool, task_for(tool))
    assert summary(reply) == ("execution_failed", "'no such account'")
    assert reply.outcome.gate == "execute"


@table("error", *TRANSIENT)
@table("kind", "read_only", "idempotent")
async def test_transient_failures_of_repeatable_tools_are_retried_three_times(
    store: Store, error: type[Exception], kind: str
) -> None:
    tool = answering(error("secret host"), **{kind: True})
    deps, task = worker_deps(store, tool), task_for(tool)
    for attempt in (1, 2):
        with pytest.raises(ApplicationError, match=f"pay: {error.__name__}$") as again:
            await run(deps, tool, task, environment(attempt=attempt))
        assert (again.value.type, again.value.non_retryable) == ("Transient", False)
        assert "secret host" not in str(again.value)
    assert summary(await run(deps, tool, task, environment(attempt=3))) == ("execution_failed", "secret host")


async def test_other_failures_of_repeatable_tools_are_final(store: Store) -> None:
    tool = answering(ValueError("no"), idempotent=True)
    assert summary(await run(worker_deps(store, tool), tool, task_for(tool))) == ("execution_failed", "no")


# Timeouts and cancels


def hanging(started: asyncio.Event, go: asyncio.Event, ended: list[str], **fields: Any) -> Any:
    async def handler(args: dict[str, Any], ctx: ToolContext) -> str:
        started.set()
        try:
            await go.wait()
        except asyncio.CancelledError:
            ended.append("torn apart")
            raise
        ended.append("finished")
        return "done"

    return free(Ledger(), handler=handler, **fields)


@table(
    ("fields", "attempt", "expected"),
    ({}, 1, ("in_doubt", IN_DOUBT_TEXT)),
    ({"read_only": True}, 3, ("execution_failed", "no answer within 0.02 s")),
    ({"idempotent": True}, 3, ("execution_failed", "no answer within 0.02 s")),
    ({"idempotent": True}, 2, None),
    ({"read_only": True}, 1, None),
)
async def test_handler_timeout_is_in_doubt_or_retried(store: Store, fields: Any, attempt: int, expected: Any) -> None:
    ended: list[str] = []
    tool = hanging(asyncio.Event(), asyncio.Event(), ended, timeout=0.02, **fields)
    deps, task = worker_deps(store, tool), task_for(tool)
    if expected is None:
        with pytest.raises(ApplicationError, match="TimeoutError") as again:
            await run(deps, tool, task, environment(attempt=attempt))
        assert again.value.type == "Transient"
    else:
        assert summary(await run(deps, tool, task, environment(attempt=attempt))) == expected
        if not fields:
            assert (await store.read_ticket(task.digest)).outcome.code == "in_doubt"
    await asyncio.sleep(0)
    assert ended == ["torn apart"]


@table(
    "details",
    ActivityCancellationDetails(cancel_requested=True),
    ActivityCancellationDetails(timed_out=True),
    ActivityCancellationDetails(not_found=True),
)
async def test_cancelled_turn_does_not_interrupt_an_effect(details: ActivityCancellationDetails, store: Store) -> None:
    started, go, ended = asyncio.Event(), asyncio.Event(), list[str]()
    tool = hanging(started, go, ended)
    task, env = task_for(tool), environment()
    running = asyncio.ensure_future(run(worker_deps(store, tool), tool, task, env))
    await begun(running, started)
    env.cancel(details)
    await asyncio.sleep(0)
    assert not running.done()
    go.set()
    assert summary(await running) == ("ok", "done")
    assert ended == ["finished"]
    assert (await store.read_ticket(task.digest)).outcome.code == "ok"


async def test_cancellation_at_the_end_of_a_handler_keeps_the_outcome(store: Store) -> None:
    env = environment()

    async def handler(args: dict[str, Any], ctx: ToolContext) -> str:
        env.cancel()
        return "done"

    tool = free(Ledger(), handler=handler)
    task = task_for(tool)
    assert summary(await run(worker_deps(store, tool), tool, task, env)) == ("ok", "done")
    assert (await store.read_ticket(task.digest)).outcome.code == "ok"


async def test_cancellation_does_not_lift_the_timeout(store: Store) -> None:
    started, ended = asyncio.Event(), list[str]()
    tool = hanging(started, asyncio.Event(), ended, timeout=0.1)
    task, env = task_for(tool), environment()
    running = asyncio.ensure_future(run(worker_deps(store, tool), tool, task, env))
    await begun(running, started)
    env.cancel()
    assert summary(await asyncio.wait_for(running, 60)) == ("in_doubt", IN_DOUBT_TEXT)
    assert ended == ["torn apart"]
    assert (await store.read_ticket(task.digest)).state == "done"


@table(
    ("fields", "details"),
    ({"read_only": True}, ActivityCancellationDetails(cancel_requested=True)),
    ({"read_only": True}, ActivityCancellationDetails(not_found=True)),
    ({}, ActivityCancellationDetails(worker_shutdown=True)),
    ({"idempotent": True}, ActivityCancellationDetails(worker_shutdown=True)),
)
async def test_other_cancellations_stop_the_handler(
    store: Store, fields: Any, details: ActivityCancellationDetails
) -> None:
    started, ended = asyncio.Event(), list[str]()
    tool = hanging(started, asyncio.Event(), ended, **fields)
    task, env = task_for(tool), environment()
    running = asyncio.ensure_future(run(worker_deps(store, tool), tool, task, env))
    await begun(running, started)
    env.cancel(details)
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.sleep(0)
    assert ended == ["torn apart"]
    ticket = await store.read_ticket(task.digest)
    assert ticket is None if fields.get("read_only") else ticket.state == "claimed"


# The store


@table("refusals", 1, 3)
@table("answer", "small", "é" * INLINE_BYTES, ToolFailure("é" * INLINE_BYTES))
async def test_effect_waits_for_the_store_to_record_its_outcome(
    tmp_path: Any, caplog: pytest.LogCaptureFixture, refusals: int, answer: Any
) -> None:
    message = "the outcome of pay waits for the store"
    ledger = Ledger()
    store = await MoodyStore.open(f"sqlite:///{tmp_path}/moody.db")
    assert isinstance(store, MoodyStore)
    try:
        tool = free(ledger, handler=ledger.handler("pay", answer))
        task = task_for(tool)
        store.refusals = refusals
        reply = await run(worker_deps(store, tool), tool, task)
        assert store.refusals == 0
        assert codes([reply]) == ["execution_failed" if isinstance(answer, ToolFailure) else "ok"]
        assert len(ledger.rows) == 1
        assert [line[: len(message)] for line in caplog.messages] == [message] * refusals
        assert (await store.read_ticket(task.digest)).outcome == reply.outcome
    finally:
        await store.close()


async def test_every_tool_has_an_activity_with_its_name(store: Store, ledger: Ledger) -> None:
    tools = [free(ledger, name=name) for name in ("b_tool", "a_tool")]
    found = {each.__temporal_activity_definition.name: each for each in tool_activities(worker_deps(store, *tools))}
    assert {"a_tool", "b_tool"} <= set(found)
    reply = await environment("b_tool").run(found["b_tool"], task_for(tools[0]))
    assert summary(reply) == ("ok", "paid")
    assert [row[0] for row in ledger.rows] == ["b_tool"]


async def test_pause_between_store_retries_is_one_second(store: Store) -> None:
    tool = free(Ledger())
    assert RunOnce(worker_deps(store, tool), tool)._results._pause == 1.0


# Externally run calls


AGENT = Actor(name="desk", model="", external=ExternalAgent(acts_for=("user:guest",), undeclared="ask"))


def corrects(args: Any) -> list[SchemaProblem] | Correction:
    return [] if args["amount"] == 2 else Correction({"amount": 2}, "whole units only")


def outside(**fields: Any) -> Any:
    return free(Ledger(), runs="external", handler=run_elsewhere, **fields)


async def test_externally_run_call_is_handed_out_with_its_arguments(store: Store) -> None:
    tool = outside(validate_input=corrects)
    task = task_for(tool, {"amount": 1}, digest=task_for(tool, {"amount": 2}).digest, use="try-1")
    reply = await run(worker_deps(store, tool, actors=[AGENT]), tool, task)
    assert reply.used is not None
    assert await load(store, reply.used.args) == {"amount": 2}
    assert (reply.used.key, reply.used.definition, reply.outcome) == (task.digest, definition_hash(tool), None)
    assert reply.used.note == "The arguments were corrected (`amount`): whole units only."
    ticket = some(await store.read_ticket(task.digest))
    assert (ticket.state, ticket.owner, ticket.seen_at) == ("claimed", "try-1", None)


@table(("use", "handed"), ("try-1", True), ("try-2", False), ("", False))
async def test_permit_is_handed_out_again_only_to_the_same_attempt(store: Store, use: str, handed: bool) -> None:
    tool = outside()
    deps = worker_deps(store, tool, actors=[AGENT])
    first = await run(deps, tool, task_for(tool, use="try-1"))
    again = task_for(tool, use=use)
    if handed:
        assert (await run(deps, tool, again)).used == first.used
        return
    with pytest.raises(ApplicationError, match=IN_DOUBT_TEXT) as doubt:
        await run(deps, tool, again)
    assert (doubt.value.type, doubt.value.non_retryable) == ("InDoubt", True)


async def test_frozen_tenant_hands_out_nothing_again(store: Store) -> None:
    tool = outside()
    deps = worker_deps(store, tool, actors=[AGENT])
    await run(deps, tool, task_for(tool, use="try-1"))
    await Freezes(store).freeze("main", reason="incident", by="adm")
    with pytest.raises(ApplicationError, match=IN_DOUBT_TEXT):
        await run(deps, tool, task_for(tool, use="try-1"))


async def test_running_call_marks_its_ticket_as_seen(store: Store) -> None:
    seen: list[Any] = []

    async def handler(args: Any, context: ToolContext) -> str:
        ticket = await store.read_ticket(context.idempotency_key)
        seen.append(None if ticket is None else ticket.seen_at)
        return "paid"

    tool = free(Ledger(), handler=handler)
    assert summary(await run(worker_deps(store, tool), tool, task_for(tool)))[0] == "ok"
    assert seen[0] is not None


async def test_undeclared_external_tool_runs_under_the_wildcard_activity(store: Store) -> None:
    deps = worker_deps(store, outside(), actors=[AGENT])
    found = {each.__temporal_activity_definition.name: each for each in tool_activities(deps)}
    bash = some(deps.catalog.tool_view(pinned()).tool("Bash"))
    task = task_for(bash, {"command": "ls"}, use="try-1")
    reply = await environment("*@desk").run(found["*@desk"], task)
    assert (reply.again, reply.note) != ("stale", CHANGED)
    assert "names another tool" not in str(reply)
    refused = await environment("pay").run(found["pay"], task)
    assert "names another tool" in str(refused)


async def test_corrected_arguments_are_noted_with_the_result(store: Store) -> None:
    tool = answering("paid", validate_input=corrects)
    task = task_for(tool, {"amount": 1}, digest=task_for(tool, {"amount": 2}).digest)
    outcome = some((await run(worker_deps(store, tool), tool, task)).outcome)
    assert (outcome.code, outcome.note) == ("ok", "The arguments were corrected (`amount`): whole units only.")
    plain = some(
        (
            await run(worker_deps(store, answering("paid")), answering("paid"), in_another_turn(answering("paid")))
        ).outcome
    )
    assert plain.note == ""


@table("read_only", True, False)
async def test_specialist_call_is_recorded_with_its_result(store: Store, read_only: bool) -> None:
    tool = answering("paid", scope="specialist", justification="only the desk pays", read_only=read_only)
    assert summary(await run(worker_deps(store, tool), tool, task_for(tool)))[0] == "ok"
    records = await AuditLog(store).stream(TURN.workflow_id)
    (ended,) = [each for each in records if "result" in each.facts]
    assert (ended.facts["result"], ended.facts["arguments"]) == ("paid", ARGS)
