"""A worker's tasks are plain data, so no call can see another call's context."""

import asyncio
import json
from typing import Any

import pytest
from activity_kit import ARGS, TURN, environment, free, pinned, run, task_for, worker_deps
from turn_fixtures import Ledger

from signoff.contracts.activity_messages import RunTask
from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Principal
from signoff.registry.tool_context import ToolContext
from signoff.store.store import Store


@pytest.mark.row("E46")
async def test_concurrent_calls_see_only_their_own_context(store: Store) -> None:
    inside = asyncio.Barrier(2)

    def answer(args: dict[str, Any], ctx: ToolContext) -> Any:
        return f"{ctx.user_id} {ctx.turn_id} {args['amount']}"

    async def handler(args: dict[str, Any], ctx: ToolContext) -> Any:
        await inside.wait()
        before = answer(args, ctx)
        await inside.wait()
        assert answer(args, ctx) == before
        return before

    tool = free(Ledger(), handler=handler)
    deps = worker_deps(store, tool)
    people = {"guest": TURN.turn, "ana": "other"}

    async def called(user: str, turn: str) -> Any:
        key = TurnKey(TURN.tenant, TURN.session, turn)
        args = {**ARGS, "amount": len(user)}
        task = task_for(tool, args, ctx=pinned(user=Principal(user=user), turn=turn))
        sent = RunTask.model_validate(json.loads(task.model_dump_json()))
        assert sent == task
        reply = await run(deps, tool, sent, environment(workflow_id=key.workflow_id))
        assert reply.outcome is not None
        return reply.outcome.value.inline

    answers = await asyncio.gather(*(called(user, turn) for user, turn in people.items()))
    assert answers == ["guest t 5", "ana other 3"]
