import asyncio
import contextlib
import uuid
from typing import Any

import pytest
from activity_kit import ARGS, about, asked, decision, environment, pinned, run, task_for, worker_deps
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError
from turn_fixtures import Ledger, pay_tool

from signoff.activities.gate_activity import GateActivity
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.grant_rules import grant_id
from signoff.contracts.activity_messages import GateTask
from signoff.contracts.content import Content
from signoff.contracts.decision import GrantRequest
from signoff.contracts.message import CallPart
from signoff.formats.replace import replace
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.tool import Tool
from signoff.store.freezes import Freezes
from signoff.store.store import Store
from signoff.store.tickets import ticket_key
from signoff.testing.questions import answer, keep

POLICIES = (False, True, ApprovalPolicy(auto_approve_if="args.amount < 50.0"), ApprovalPolicy(allow_remember=True))


async def prepared(store: Store, tool: Tool, deps: WorkerDeps, before: str, ctx: Any) -> Any:
    revision = None if before == "grant" or tool.requires_approval is False else 1
    task = task_for(tool, ctx=ctx, revision=revision)
    key, workflow = ticket_key(task.digest, 1), f"turn/{ctx.tenant}/{ctx.session}/{ctx.turn}"
    if revision is not None:
        await asked(deps, tool, ctx=ctx)
    if before == "open":
        await store.claim(key, workflow=workflow, call="c1.1", tool=tool.name)
    if before == "void":
        await store.void_unclaimed(key, workflow=workflow, call="c1.1", tool=tool.name)
    if before == "grant":
        earlier = replace(ctx, turn=f"{ctx.turn}b")
        request = await asked(deps, tool, ctx=earlier)
        wish = GrantRequest(scope="tenant")
        await answer(store, about(request, approval_id=request.id, remember=wish))
        task = replace(task, grant=grant_id(request.id, request.revision, "approved"))
    return replace(task, ticket=2 if before == "void" else 1)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(policy=ApprovalPolicy(allow_remember=True), before="grant", read_only=True, idempotent=False, attempt=1)
@example(policy=False, before="open", read_only=False, idempotent=True, attempt=2)
@given(
    policy=st.sampled_from(POLICIES),
    before=st.sampled_from(["nothing", "open", "void", "grant"]),
    read_only=st.booleans(),
    idempotent=st.booleans(),
    attempt=st.integers(1, 3),
)
async def test_frozen_tenant_runs_no_tool_by_any_path(
    store: Store, policy: Any, before: str, read_only: bool, idempotent: bool, attempt: int
) -> None:
    ledger = Ledger()
    tool = pay_tool(ledger, policy, read_only=read_only, idempotent=idempotent)
    deps = worker_deps(store, tool)
    ctx = pinned(turn=f"t{uuid.uuid4().hex[:12]}")
    task = await prepared(store, tool, deps, before, ctx)
    if task.revision is not None:
        await keep(store, decision(approval_id=task.approval_id))
    workflow_id = f"turn/{ctx.tenant}/{ctx.session}/{ctx.turn}"
    await Freezes(store).freeze("main", reason="drill", by="ana")
    env = environment(tool.name, workflow_id=workflow_id, attempt=attempt)
    with contextlib.suppress(ApplicationError):
        await run(deps, tool, task, env)
    gated = await environment("signoff.gate", is_local=True, workflow_id=workflow_id).run(
        GateActivity(deps).gate,
        GateTask(ctx=ctx, calls=(CallPart(call="c1.1", tool="pay", args=Content(inline=ARGS)),)),
    )
    assert [gate_decision.kind for gate_decision in gated.gate_decisions] == ["settled"]
    assert gated.gate_decisions[0].outcome is not None
    assert gated.gate_decisions[0].outcome.code == "denied"
    assert ledger.rows == []
    await Freezes(store).unfreeze("main")
    if before == "open" and not (read_only or idempotent):
        with pytest.raises(ApplicationError, match="not known whether"):
            await run(deps, tool, task, env)
        return
    await run(deps, tool, task, env)
    # A grant applies only if the policy allows grants. Otherwise the call is judged again.
    assert len(ledger.rows) == (0 if before == "grant" and policy is True else 1)


async def test_freeze_during_many_starts_lets_no_later_call_start(store: Store, ledger: Ledger) -> None:
    tool = pay_tool(ledger, False)
    deps = worker_deps(store, tool)
    ctxs = [pinned(turn=f"t{number}") for number in range(30)]
    running = [
        asyncio.create_task(
            run(
                deps,
                tool,
                task_for(tool, ctx=ctx),
                environment(tool.name, workflow_id=f"turn/main/s/{ctx.turn}"),
            )
        )
        for ctx in ctxs
    ]
    await asyncio.sleep(0.01)
    await Freezes(store).freeze("main", reason="drill", by="ana")
    keys = [ticket_key(task_for(tool, ctx=ctx).digest, 1) for ctx in ctxs]
    begun = {key for key in keys if await store.read_ticket(key) is not None}
    replies = await asyncio.gather(*running)
    assert {row[2] for row in ledger.rows} == begun
    denied = [reply.outcome for reply in replies if reply.outcome is not None and reply.outcome.code == "denied"]
    assert len(denied) == len(keys) - len(begun)
    assert all(outcome.denied and outcome.denied.reason == "frozen: drill" for outcome in denied)
