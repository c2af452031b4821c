from typing import Any

import pytest
from turn_fixtures import Ledger, TurnRig, no, pay_tool, yes

from signoff.contracts.content import text_of
from signoff.contracts.turn import TurnResult
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolFailure
from signoff.testing.scripted_model import calls, respond

ONE = {"amount": 1}


def _direct(name: str, ledger: Ledger, answer: Any, asks: bool = False) -> Tool:
    return pay_tool(
        ledger, asks, name=name, effect="", handler=ledger.handler(name, answer), return_direct=True, read_only=not asks
    )


def _said(result: TurnResult) -> list[str]:
    return [text_of(part.content) for part in result.parts]


@pytest.mark.row("E50")
async def test_direct_return_ends_the_turn_with_its_value(turn_rig: TurnRig, ledger: Ledger) -> None:
    plain = pay_tool(ledger)
    tools = [plain, _direct("report", ledger, {"rows": 3}), _direct("other", ledger, "second")]
    batch = calls(("pay", ONE), ("report", ONE), ("other", ONE))
    async with turn_rig.running(tools, [batch, respond("never asked")]) as turns:
        key = await turns.start()
        view = await turns.waiting(key)
        assert view.result is None
        result = await turns.result_after(yes(key))
        await turns.replays(key)
    assert (result.state, result.completions, _said(result)) == ("complete", 1, ['{"rows":3}'])
    assert [(each.call, each.code, each.direct) for each in result.calls] == [
        ("c1.1", "ok", False),
        ("c1.2", "ok", True),
        ("c1.3", "ok", True),
    ]
    assert sorted(name for name, _, _ in ledger.rows) == ["other", "pay", "report"]


@pytest.mark.row("E50")
async def test_only_a_successful_call_returns_directly(turn_rig: TurnRig, ledger: Ledger) -> None:
    tools = [
        _direct("broken", ledger, lambda args, ctx: ToolFailure("no")),
        _direct("asked", ledger, "done", asks=True),
    ]
    script = [calls(("broken", ONE), ("asked", ONE)), calls(("asked", {"amount": 2})), respond("never asked")]
    async with turn_rig.running(tools, script) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(no(key, "c1.2"))
        await turns.until(key, lambda view: any(c.call == "c2.1" and c.approval is not None for c in view.calls))
        result = await turns.result_after(yes(key, "c2.1"))
    assert (result.state, result.completions, _said(result)) == ("complete", 2, ["done"])
    assert [(each.code, each.direct) for each in result.calls] == [
        ("execution_failed", False),
        ("denied", False),
        ("ok", True),
    ]


@pytest.mark.row("E50")
async def test_dry_run_never_returns_directly(turn_rig: TurnRig) -> None:

    async def never(args: dict[str, Any], ctx: ToolContext) -> str:
        raise AssertionError

    tool = pay_tool(Ledger(), False, handler=never, return_direct=True)
    async with turn_rig.running([tool], [calls(("pay", ONE)), respond("told")]) as turns:
        result = await turns.signoff.result(await turns.start(dry_run=True))
    assert (_said(result), [each.direct for each in result.calls]) == (["told"], [False])


async def test_handed_off_call_does_not_return_directly(turn_rig: TurnRig, ledger: Ledger) -> None:
    tools = [_direct("export", ledger, lambda args, ctx: ctx.hand_off())]
    script = [calls(("export", ONE)), respond("It is on its way.")]
    async with turn_rig.running(tools, script) as turns:
        result = await turns.signoff.result(await turns.start())
    assert (result.completions, _said(result)) == (2, ["It is on its way."])
    assert [(each.code, each.direct, each.handed) for each in result.calls] == [("ok", False, True)]
