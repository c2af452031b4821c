import asyncio
from typing import Any

import pytest
from some import some
from turn_fixtures import ApprovalPolicy, Ledger, TurnRig, catalog_of, doubted, pay_tool, yes

from signoff.contracts.activity_messages import TurnLimits
from signoff.contracts.call import CallOutcome
from signoff.contracts.limits import RESULT_CHARS_PER_BATCH
from signoff.formats.replace import replace
from signoff.registry.actor import Actor
from signoff.registry.program.tool_keywords import BypassRouting
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolResult
from signoff.store.tickets import ticket_key
from signoff.testing.scripted_model import calls, respond


def costly(cost: float, seconds: float = 0.0, **fields: Any) -> Any:
    async def run(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        await asyncio.sleep(seconds)
        return ToolResult("done", cost=cost)

    return pay_tool(Ledger(), fields.pop("asks", False), name="look", effect="", handler=run, **fields)


@pytest.mark.row("P16")
async def test_turn_result_reports_calls_cost_and_time(turn_rig: TurnRig) -> None:
    look = ("look", {"amount": 1})
    tools = [costly(0.5, 0.05), pay_tool(Ledger())]
    script = [calls(look, look, ("pay", {"amount": "?"}), ("pay", {"amount": 9})), respond("done")]
    async with turn_rig.running(tools, script) as turns:
        key = await turns.start_waiting()
        await turns.forward(key, hours=1)
        result = await turns.result_after(yes(key, "c1.4"))
    assert (result.actor, result.turn, result.state) == ("desk", key.turn, "complete")
    assert (result.completions, result.tool_calls, result.cost) == (2, 4, 1.0)
    assert 0.1 <= result.active_seconds < 3_600 <= result.elapsed_seconds


@pytest.mark.row("P16", "E48")
@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (TurnLimits(cost=0.9), "cost_limit"),
        (TurnLimits(active_seconds=0.15), "time_limit"),
        (TurnLimits(calls=2), "call_limit"),
    ],
)
@pytest.mark.parametrize("inline", [False, True], ids=["routed", "bypass"])
async def test_turn_stops_when_its_budget_is_spent(
    limits: TurnLimits, code: str, inline: bool, turn_rig: TurnRig
) -> None:
    bypass: dict[str, Any] = {
        "scope": "specialist",
        "routing": "bypass",
        "bypass_routing": BypassRouting("only ever reads the price list"),
        "justification": "the price desk alone looks prices up",
        "read_only": True,
    }
    actor = Actor(name="desk", model="scripted", limits=limits)
    script = [calls(("look", {"amount": number})) for number in range(5)]
    catalog = catalog_of([costly(0.5, 0.1, **(bypass if inline else {}))], actors=[actor])
    async with turn_rig.running(catalog, script) as turns:
        key = await turns.start()
        result = await turns.signoff.result(key)
        await turns.replays(key)
    assert (result.state, some(result.error).code) == ("error", code)
    # On a busy machine the model may use up the time of the second call.
    done = 1 if code == "time_limit" and len(result.calls) == 1 else 2
    assert [outcome.code for outcome in result.calls] == ["ok"] * done
    assert (result.tool_calls, result.cost, result.completions) == (done, done * 0.5, done)


@pytest.mark.row("N22")
async def test_result_budget_is_shared_within_a_batch(turn_rig: TurnRig) -> None:
    budgets: dict[str, int] = {}

    def note(args: dict[str, Any], ctx: ToolContext) -> str:
        budgets[ctx.call_id] = ctx.result_budget_chars
        return "done"

    tool = pay_tool(Ledger(), False, name="look", effect="", handler=Ledger().handler("look", note))
    one, two = ("look", {"amount": 1}), ("look", {"amount": 2})
    script = [calls(one), calls(one, two), calls(one), respond("done")]
    async with turn_rig.running([tool], script) as turns:
        await turns.signoff.result(await turns.start())
    whole, half = RESULT_CHARS_PER_BATCH, RESULT_CHARS_PER_BATCH // 2
    assert budgets == {"c1.1": whole, "c2.1": half, "c2.2": half, "c3.1": whole}


@pytest.mark.row("F53")
async def test_actor_limits_the_completions_of_its_turns(turn_rig: TurnRig) -> None:
    actor = Actor(name="desk", model="scripted", limits=TurnLimits(completions=5))
    script = [calls(("look", {"amount": number})) for number in range(9)]
    async with turn_rig.running(catalog_of([costly(0)], actors=[actor]), script) as turns:
        result = await turns.signoff.result(await turns.start())
    assert (some(result.error).code, result.completions, len(result.calls)) == ("completion_limit", 5, 5)


FOUND = CallOutcome(call="c1.1", tool="pay", code="ok", gate="execute", cost=0.5, duration_ms=90_000)
PAY = ("pay", {"amount": 20})


async def test_cost_of_a_slow_worker_counts_after_a_happened_answer(turn_rig: TurnRig) -> None:
    async with turn_rig.running([pay_tool(Ledger())], [calls(PAY), respond("done")]) as turns:
        key = await turns.start()
        asked = some((await turns.waiting(key)).calls[0].approval)
        ticket = ticket_key(asked.digest, 1)
        await turn_rig.store.claim(ticket, workflow=key.workflow_id, call="c1.1", tool="pay")
        await turns.signoff.decide(yes(key))
        await turns.until(key, doubted)
        await turn_rig.store.record(ticket, FOUND)
        result = await turns.result_after(yes(key, revision=2, verdict="happened"))
        await turns.replays(key)
    assert (result.calls[0].code, result.cost) == ("ok", 0.5)
    assert result.active_seconds >= 90


@pytest.mark.parametrize(("cost", "code"), [(0.5, "cost_limit"), (0.0, "")])
async def test_cost_of_a_lost_activity_counts(cost: float, code: str, turn_rig: TurnRig) -> None:
    tool = pay_tool(Ledger(), ApprovalPolicy(grant_ttl=0.5), task_queue=f"{turn_rig.task_queue}-nobody")
    actor = Actor(name="desk", model="scripted", limits=TurnLimits(cost=0.5))
    catalog = catalog_of([tool], actors=[actor])
    async with turn_rig.running(catalog, [calls(PAY), respond("done")]) as turns:
        key = await turns.start()
        asked = some((await turns.waiting(key)).calls[0].approval)
        ticket = ticket_key(asked.digest, 1)
        await turn_rig.store.claim(ticket, workflow=key.workflow_id, call="c1.1", tool="pay")
        await turn_rig.store.record(ticket, replace(FOUND, cost=cost, duration_ms=0))
        result = await turns.result_after(yes(key))
        await turns.replays(key)
    assert [each.code for each in result.calls] == ["ok"]
    assert (result.cost, result.error.code if result.error else "") == (cost, code)
