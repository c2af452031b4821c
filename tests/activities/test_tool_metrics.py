import json
from typing import Any

import pytest
from activity_kit import TURN, environment, free, pinned, run, task_for, worker_deps
from turn_fixtures import Ledger, pay_tool

from signoff.audit.log import AuditLog
from signoff.audit.tool_metrics import ToolMetrics, tool_metrics
from signoff.contracts.errors import Refused
from signoff.contracts.ids import TurnKey
from signoff.formats.replace import replace
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolFailure, ToolResult
from signoff.store.store import Store


async def handler(args: dict[str, Any], ctx: ToolContext) -> Any:
    """Fail for amounts above ten, and report a cost."""
    return ToolFailure("too much") if args["amount"] > 10 else ToolResult("paid", cost=0.25)


@pytest.mark.row("F21")
async def test_success_and_failure_are_counted_per_tool(store: Store) -> None:
    pay, look = free(Ledger(), handler=handler), free(Ledger(), name="look", read_only=True)
    gated = pay_tool(Ledger(), True, name="gated")
    deps = worker_deps(store, pay, look, gated)
    for number, (tool, amount) in enumerate(((pay, 5), (pay, 20), (pay, 7), (look, 1), (gated, 1))):
        turn = f"t{number}"
        key, args = TurnKey(TURN.tenant, TURN.session, turn), {"amount": amount}
        task = task_for(tool, args, ctx=pinned(turn=turn))
        for _ in range(2):
            await run(deps, tool, task, environment(tool.name, workflow_id=key.workflow_id))
    found = {each.tool: each for each in await tool_metrics(AuditLog(store).records())}
    assert found["pay"].model_dump(include={"runs", "ok", "failed", "cost"}) == {
        "runs": 3,
        "ok": 2,
        "failed": {"execution_failed": 1},
        "cost": 0.5,
    }
    assert (found["look"].runs, found["look"].ok) == (1, 1)
    assert 0 <= found["pay"].mean_ms <= found["pay"].longest_ms
    assert "gated" not in found
    assert await tool_metrics(AuditLog(store).records(tenant="other")) == []


async def test_durations_are_reported_as_mean_and_maximum(store: Store) -> None:
    async def records() -> Any:
        async for record in AuditLog(store).records():
            facts = record.facts | {"duration_ms": 10 if "ok" in record.data else 40}
            yield replace(record, data=json.dumps(facts))

    pay = free(Ledger(), handler=handler)
    deps = worker_deps(store, pay)
    for number, amount in enumerate((5, 20)):
        key, args = TurnKey(TURN.tenant, TURN.session, f"t{number}"), {"amount": amount}
        await run(
            deps, pay, task_for(pay, args, ctx=pinned(turn=key.turn)),
            environment(workflow_id=key.workflow_id),
        )  # fmt: skip
    [found] = await tool_metrics(records())
    assert isinstance(found, ToolMetrics)
    assert (found.mean_ms, found.longest_ms) == (25.0, 40)


async def test_altered_entry_is_rejected_by_the_metrics(store: Store) -> None:
    async def records() -> Any:
        async for record in AuditLog(store).records():
            yield replace(record, data="[]")

    pay = free(Ledger())
    await run(worker_deps(store, pay), pay, task_for(pay))
    with pytest.raises(Refused, match="was changed"):
        await tool_metrics(records())
