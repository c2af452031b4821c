import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from activity_kit import ARGS, TURN, begun, environment, pinned, run, task_for, worker_deps
from some import some
from sqlalchemy import Connection
from tables import table
from temporalio.activity import ActivityCancellationDetails
from temporalio.testing import ActivityEnvironment
from turn_fixtures import ApprovalPolicy, Ledger, catalog_of, pay_tool

from signoff.activities.gate_activity import GateActivity
from signoff.activities.hooks.tool_hooks import unavailable_tools, withheld_tools
from signoff.activities.outcome_activity import OutcomeActivity
from signoff.activities.usage_check import use_of
from signoff.activities.worker_deps import WorkerDeps
from signoff.audit.log import AuditLog
from signoff.contracts.activity_messages import GateDecision, GateTask, OutcomeTask, Tally
from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content, text_of
from signoff.contracts.message import CallPart
from signoff.contracts.names import GATE, OUTCOME
from signoff.contracts.usage import LimitedUse, UsageLimit
from signoff.registry.actor import Actor, Route, Step
from signoff.registry.gates.pipeline import GateFacts, judge
from signoff.registry.tool import Tool
from signoff.registry.tool_result import ToolFailure
from signoff.store.limits.usage_counts import UsageCounts
from signoff.store.store import Also, Store
from signoff.store.tickets import Claim

OFFICE = ("Mo-Fr 08:00-18:00 Europe/Lisbon",)
MONDAY_NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
SUNDAY = datetime(2026, 1, 4, 12, tzinfo=UTC)
ONCE = UsageLimit(1, "tenant", 86_400.0)


class SlowStore(Store):
    """Writes a claim, sets `claimed`, and returns it after `go` is set."""

    claimed: asyncio.Event
    go: asyncio.Event

    async def claim(
        self,
        key: str,
        *,
        workflow: str,
        call: str,
        tool: str,
        owner: str = "",
        nonce: str = "",
        grant: str = "",
        use: LimitedUse | None = None,
        holds: Callable[[Connection], bool] | None = None,
        also: Also | None = None,
        runs: bool = False,
        begun: datetime | None = None,
    ) -> Claim:
        more: dict[str, Any] = {
            "owner": owner,
            "nonce": nonce,
            "grant": grant,
            "use": use,
            "holds": holds,
            "runs": runs,
            "begun": begun,
        }
        found = await super().claim(key, workflow=workflow, call=call, tool=tool, also=also, **more)
        self.claimed.set()
        await self.go.wait()
        return found


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[SlowStore]:
    found = await SlowStore.open(f"sqlite:///{tmp_path}/slow.db")
    assert isinstance(found, SlowStore)
    found.claimed, found.go = asyncio.Event(), asyncio.Event()
    yield found
    await found.close()


async def stopped(env: ActivityEnvironment, **details: bool) -> None:
    env.cancel(ActivityCancellationDetails(**details or {"cancel_requested": True}))
    await asyncio.sleep(0)


def tool(ledger: Ledger | None = None, **fields: Any) -> Tool:
    return pay_tool(ledger or Ledger(), fields.pop("requires_approval", False), **fields)


async def ruled(deps: WorkerDeps, call: str = "c1.1", **fields: Any) -> GateDecision:
    part = CallPart(call=call, tool="pay", args=Content(inline=ARGS))
    task = GateTask(ctx=pinned(**fields), calls=(part,))
    return (await environment(GATE, is_local=True).run(GateActivity(deps).gate, task)).gate_decisions[0]


def summary(outcome: CallOutcome | None) -> tuple[str, str, str]:
    assert outcome is not None
    return outcome.gate, outcome.code, text_of(outcome.value)


async def left(store: Store, found: Tool) -> bool:
    use = some(use_of(catalog_of([found]), found, pinned(turn="t9"), "c1.1"))
    return await UsageCounts(store).check([use]) == [None]


async def test_tool_is_not_available_outside_its_hours(store: Store) -> None:
    asked = []

    async def here(context: Any) -> bool:
        asked.append(context)
        return True

    deps = worker_deps(store, tool(hours=OFFICE, available=here), tool(name="look"))
    assert await withheld_tools(deps.catalog, pinned(), at=MONDAY_NOON) == frozenset()
    assert len(asked) == 1
    assert await withheld_tools(deps.catalog, pinned(), at=SUNDAY) == {"pay"}
    assert await unavailable_tools(deps.catalog, pinned(), ("pay", "look"), at=SUNDAY) == {"pay"}
    assert len(asked) == 1


async def test_hours_are_checked_at_the_gates_and_at_run_time(store: Store, ledger: Ledger) -> None:
    paid = tool(ledger, hours=OFFICE)
    deps = worker_deps(store, paid)
    open_deps = dataclasses.replace(deps, clock=lambda: MONDAY_NOON)
    closed_deps = dataclasses.replace(deps, clock=lambda: SUNDAY)
    assert (await ruled(open_deps)).kind == "run"
    away = ("available", "not_available", "Tool pay is not currently available")
    assert summary((await ruled(closed_deps)).outcome) == away
    assert summary((await run(closed_deps, paid, task_for(paid))).outcome) == away
    assert ledger.rows == []
    assert summary((await run(open_deps, paid, task_for(paid))).outcome)[:2] == ("execute", "ok")


@pytest.mark.row("F18")
async def test_usage_limit_is_checked_at_the_gates_and_taken_with_the_ticket(store: Store, ledger: Ledger) -> None:
    paid = tool(ledger, usage_limit=ONCE)
    deps = worker_deps(store, paid)
    assert (await ruled(deps)).kind == "run"
    assert summary((await run(deps, paid, task_for(paid))).outcome)[1] == "ok"
    gate, code, words = summary((await ruled(deps, turn="t2")).outcome)
    assert (gate, code) == ("usage", "not_available")
    assert words.startswith("Tool pay was used once in this tenant within 1d, which is all it may be; it is possible")
    late = task_for(paid, ctx=pinned(turn="t2"))
    other = environment(workflow_id="turn/main/s/t2")
    assert summary((await run(deps, paid, late, other)).outcome)[:2] == ("usage", "not_available")
    assert len(ledger.rows) == 1


async def test_call_that_took_the_last_use_may_run_again(store: Store, ledger: Ledger) -> None:
    paid = tool(ledger, usage_limit=ONCE)
    deps = worker_deps(store, paid)
    for _ in range(3):
        assert (await ruled(deps)).kind == "run"
        assert summary((await run(deps, paid, task_for(paid))).outcome)[1] == "ok"
    assert len(ledger.rows) == 1


@table("read_only", True, False)
async def test_failed_call_returns_its_use(store: Store, read_only: bool) -> None:
    def fails(args: Any, context: Any) -> ToolFailure:
        return ToolFailure("closed")

    for answer, free in ((fails, True), ("paid", False)):
        ledger = Ledger()
        paid = tool(ledger, usage_limit=ONCE, read_only=read_only, handler=ledger.handler("pay", answer))
        ctx = pinned(turn=f"t-{free}")
        env = environment(workflow_id=f"turn/main/s/t-{free}")
        await run(worker_deps(store, paid), paid, task_for(paid, ctx=ctx), env)
        assert await left(store, paid) is free


async def test_lost_read_returns_its_use(store: Store) -> None:
    paid = tool(usage_limit=ONCE, read_only=True)
    deps, task = worker_deps(store, paid), task_for(paid)
    use = use_of(deps.catalog, paid, task.ctx, "c1.1")
    await store.claim(task.digest, workflow=TURN.workflow_id, call="c1.1", tool="pay", use=use)
    assert not await left(store, paid)
    lost = OutcomeTask(run=task)
    reply = await environment(OUTCOME, activity_id="o").run(OutcomeActivity(deps).outcome, lost)
    assert summary(reply.outcome)[1] == "execution_failed"
    assert await left(store, paid)


@pytest.mark.parametrize("audit", ["required", "best_effort"])
@pytest.mark.parametrize("read_only", [True, False])
async def test_call_cancelled_before_its_start_returns_its_use(
    slow: SlowStore, read_only: bool, audit: Any, ledger: Ledger
) -> None:
    policy = ApprovalPolicy(auto_approve_if="true", audit=audit)
    paid = tool(ledger, usage_limit=ONCE, read_only=read_only, requires_approval=policy)
    deps, task, env = worker_deps(slow, paid), task_for(paid), environment()
    running = asyncio.ensure_future(run(deps, paid, task, env))
    await begun(running, slow.claimed)
    assert not await left(slow, paid)
    await stopped(env)
    slow.go.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ledger.rows == []
    assert await left(slow, paid)
    ticket = some(await slow.read_ticket(task.digest))
    assert ticket.claim.kind == "undone"
    ends = [each.facts for each in await AuditLog(slow).stream(TURN.workflow_id) if each.kind == "outcome"]
    assert [each["code"] for each in ends] == ["skipped"]
    again = task_for(paid, ticket=2)
    assert summary((await run(deps, paid, again)).outcome)[1] == "ok"


async def test_call_cancelled_before_a_second_attempt_keeps_its_use(slow: SlowStore) -> None:
    paid = tool(usage_limit=ONCE, read_only=True)
    deps, task, env = worker_deps(slow, paid), task_for(paid), environment(attempt=2)
    use = use_of(deps.catalog, paid, task.ctx, "c1.1")
    slow.go.set()
    await slow.claim(task.digest, workflow=TURN.workflow_id, call="c1.1", tool="pay", use=use)
    slow.go.clear()
    slow.claimed.clear()
    running = asyncio.ensure_future(run(deps, paid, task, env))
    await begun(running, slow.claimed)
    await stopped(env)
    slow.go.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not await left(slow, paid)


async def test_call_of_a_stopping_worker_is_left_to_another_worker(slow: SlowStore) -> None:
    paid = tool(usage_limit=ONCE, read_only=True)
    task, env = task_for(paid), environment()
    running = asyncio.ensure_future(run(worker_deps(slow, paid), paid, task, env))
    await begun(running, slow.claimed)
    await stopped(env, worker_shutdown=True)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not await left(slow, paid)
    ticket = some(await slow.read_ticket(task.digest))
    assert ticket.state == "claimed"


async def test_read_cancelled_while_running_keeps_its_use(store: Store) -> None:
    inside = asyncio.Event()

    async def reads(args: Any, context: Any) -> str:
        inside.set()
        await asyncio.Event().wait()
        return "never"

    paid = tool(usage_limit=ONCE, read_only=True, handler=reads)
    env = environment()
    running = asyncio.ensure_future(run(worker_deps(store, paid), paid, task_for(paid), env))
    await begun(running, inside)
    await stopped(env)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not await left(store, paid)


async def test_registered_tool_has_one_count_in_all_places(store: Store) -> None:
    paid, own = tool(usage_limit=ONCE), tool(usage_limit=ONCE, effect="Pay {amount}", secrets=("to",))
    routes = (Route(name="trip", steps=(Step(name="book", tools=("pay",)), Step(name="end", tools=("pay",)))),)
    actor = Actor(
        name="desk",
        description="",
        instructions="",
        model="scripted",
        shadowing="allow",
        own_tools=(own,),
        routes=routes,
    )
    deps = worker_deps(store, paid, actors=[actor])
    counted = {}
    for each in deps.catalog.every_tool:
        use = some(use_of(deps.catalog, each, pinned(), "c1.1"))
        counted[each.activity] = use.tool
    assert len(counted) > 4
    assert {*counted.values()} == {"pay"}
    found = some(deps.catalog.tool("pay@desk.trip.book"))
    use = use_of(deps.catalog, found, pinned(), "c1.1")
    await store.claim("t", workflow=TURN.workflow_id, call="c1.1", tool="pay", use=use)
    again = await ruled(deps, "c2.1", route="trip", step="end")
    assert summary(again.outcome)[:2] == ("usage", "not_available")


def test_tool_in_several_places_of_an_actor_has_one_count(store: Store) -> None:
    paid = tool(usage_limit=ONCE)
    steps = tuple(Step(name=name, tools=(paid,)) for name in ("book", "end"))
    routes = (Route(name="trip", steps=steps), Route(name="till", tools=(tool(usage_limit=ONCE, effect="Other"),)))
    fields = {"description": "", "instructions": "", "model": "scripted", "routes": routes}
    deps = worker_deps(store, actors=[Actor(name=name, **fields) for name in ("desk", "shop")])
    counted = {}
    for each in deps.catalog.every_tool:
        use = use_of(deps.catalog, each, pinned(), "c1.1")
        counted[each.activity] = "" if use is None else use.tool
    assert {name: result for name, result in counted.items() if "desk" in name and "*" not in name} == {
        "pay@desk.trip.book": "pay@desk.trip.book",
        "pay@desk.trip.end": "pay@desk.trip.book",
        "pay@desk.till": "pay@desk.till",
    }
    assert counted["pay@shop.trip.end"] == "pay@shop.trip.book"


def test_usage_limit_without_a_known_count_blocks_the_call() -> None:
    call = CallPart(call="c1.1", tool="pay", args=Content(inline=ARGS))
    limited, free = (catalog_of([tool(usage_limit=limit)]) for limit in (ONCE, None))
    found = judge(limited, pinned(), call, ARGS, Tally())
    assert (found.gate, found.code) == ("usage", "not_available")
    assert "were not counted" in found.message
    assert judge(limited, pinned(), call, ARGS, Tally(), known=GateFacts(spent={"c1.2": "no"})).kind == "run"
    assert judge(free, pinned(), call, ARGS, Tally()).kind == "run"
