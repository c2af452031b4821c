from typing import Any

import pytest
from turn_fixtures import (
    ApprovalPolicy,
    Ledger,
    RunningTurns,
    TurnRig,
    doubted,
    pay_tool,
    slow_once,
    yes,
)

from signoff.contracts.call import RuleReference
from signoff.contracts.ids import TurnKey
from signoff.registry.hooks import CannotTell, DidNotHappen, Happened
from signoff.registry.tool_context import ToolContext
from signoff.testing.scripted_model import calls, respond

SCRIPT = [calls(("pay", {"amount": 20, "to": "Ana"})), respond("done")]
FREE = ApprovalPolicy(auto_approve_if="args.amount < 50.0")


class Finder:
    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def __call__(self, args: dict[str, Any], context: ToolContext) -> Any:
        self.asked.append(context.idempotency_key)
        return self.answer


async def lost(turns: RunningTurns) -> tuple[TurnKey, str]:
    key = await turns.start()
    return key, (await turns.lose(key)).digest


async def test_probe_that_finds_the_effect_needs_no_approver(turn_rig: TurnRig) -> None:
    ledger, finder = Ledger(), Finder(Happened("booking 7"))
    async with turn_rig.running([pay_tool(ledger, probe=finder)], SCRIPT) as turns:
        key, digest = await lost(turns)
        outcome = (await turns.signoff.result(key)).calls[0]
        results = await turns.results(key)
        view = await turns.signoff.view(key)
    assert (outcome.code, outcome.value.inline, outcome.decided_by) == ("ok", "booking 7", "approver")
    assert results[0].note == "The tool did not answer; it was looked up, and this happened."
    assert (ledger.rows, finder.asked) == ([], [digest])
    assert view.calls[0].approval is None or view.calls[0].approval.kind == "approval"


async def test_probe_that_finds_no_effect_repeats_the_call_under_its_approval(turn_rig: TurnRig) -> None:
    ledger, finder = Ledger(), Finder(DidNotHappen())
    async with turn_rig.running([pay_tool(ledger, probe=finder)], SCRIPT) as turns:
        key, digest = await lost(turns)
        result = await turns.signoff.result(key)
    assert [(outcome.code, outcome.decided_by) for outcome in result.calls] == [("ok", "approver")]
    assert [row[2] for row in ledger.rows] == [f"{digest}/2"]
    assert finder.asked == [digest]


async def test_probed_call_runs_again_by_its_rule(turn_rig: TurnRig) -> None:
    ledger, finder = Ledger(), Finder(DidNotHappen())
    tool = pay_tool(ledger, FREE, handler=slow_once(ledger), timeout=0.2, probe=finder)
    async with turn_rig.running([tool], SCRIPT) as turns:
        key = await turns.start()
        result = await turns.signoff.result(key)
        events = await turns.events(key)
    assert [(outcome.code, outcome.rule) for outcome in result.calls] == [("ok", RuleReference(name="auto_approve_if"))]
    assert [row[2].endswith("/2") for row in ledger.rows] == [True]
    assert events.count("TIMER_STARTED") == 0


async def test_probe_that_cannot_tell_asks_an_approver(turn_rig: TurnRig) -> None:
    ledger, finder = Ledger(), Finder(CannotTell())
    async with turn_rig.running([pay_tool(ledger, probe=finder)], SCRIPT) as turns:
        key, digest = await lost(turns)
        await turns.until(key, doubted)
        result = await turns.result_after(yes(key, revision=2))
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert [row[2] for row in ledger.rows] == [f"{digest}/2"]
    assert finder.asked == [digest]


@pytest.mark.parametrize(("answer", "rows"), [(Happened("booking 7"), 0), (DidNotHappen(), 1)])
async def test_reset_repeats_neither_probe_nor_question(answer: Any, rows: int, turn_rig: TurnRig) -> None:
    ledger, finder = Ledger(), Finder(answer)
    tool = pay_tool(ledger, FREE, handler=slow_once(ledger), timeout=0.2, probe=finder)
    async with turn_rig.running([tool], SCRIPT) as turns:
        key = await turns.start()
        first = await turns.signoff.result(key)
        finder.answer = CannotTell()
        await turns.reset(key)
        again = await turns.signoff.result(key)
        view = await turns.signoff.view(key)
    assert (again.calls, view.calls[0].approval) == (first.calls, None)
    assert (len(ledger.rows), len(finder.asked)) == (rows, 1)
