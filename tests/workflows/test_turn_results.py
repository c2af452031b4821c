from typing import Any

import pytest
from some import some
from turn_fixtures import ApprovalPolicy, Ledger, TurnRig, pay_tool, yes

from signoff.contracts.limits import RESULT_CHARS_PER_BATCH
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolResult
from signoff.testing.scripted_model import calls, respond

PAY = ("pay", {"amount": 20, "to": "Ana"})


@pytest.mark.row("B75", "N21")
async def test_handler_context_names_requester_and_approver(turn_rig: TurnRig) -> None:
    found: dict[str, ToolContext] = {}

    def note(args: dict[str, Any], ctx: ToolContext) -> str:
        found[ctx.call_id] = ctx
        return "paid"

    handler = Ledger().handler("pay", note)
    tools = [pay_tool(Ledger(), handler=handler), pay_tool(Ledger(), False, name="look", effect="", handler=handler)]
    script = [calls(PAY, ("look", {"amount": 1})), respond("done")]
    async with turn_rig.running(tools, script) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key, reason="agreed by phone"))
        await turns.signoff.result(key)
    asked, free = found["c1.1"], found["c1.2"]
    assert (asked.approval_decision, asked.approval_reason, asked.decided_by) == (
        "approved",
        "agreed by phone",
        "approver",
    )
    assert (free.approval_decision, free.approval_reason, free.decided_by) == (None, "", "")
    for ctx in (asked, free):
        assert (ctx.actor_name, ctx.session_id, ctx.turn_id) == ("desk", key.session, key.turn)
        assert (ctx.user_id, ctx.person_id, ctx.tenant_id) == ("guest", "guest", "main")


@pytest.mark.row("B54", "P12")
async def test_handler_exception_fails_its_call_and_the_turn_continues(turn_rig: TurnRig, ledger: Ledger) -> None:
    def fail(args: dict[str, Any], ctx: ToolContext) -> str:
        raise ValueError("no such account")

    tool = pay_tool(ledger, False, handler=ledger.handler("pay", fail))
    async with turn_rig.running([tool], [calls(PAY), respond("sorry")]) as turns:
        result = await turns.signoff.result(await turns.start())
    assert result.state == "complete"
    assert [(each.code, each.value.inline) for each in result.calls] == [("execution_failed", "no such account")]
    assert len(ledger.rows) == 1


@pytest.mark.row("E18", "N11")
async def test_calls_of_one_completion_share_the_result_budget(turn_rig: TurnRig) -> None:
    budgets: list[int] = []

    def long(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        budgets.append(ctx.result_budget_chars)
        return ToolResult("é" * 60_000, structured={"rows": 3}, cost=0.5)

    handler = Ledger().handler("look", long)
    tool = pay_tool(Ledger(), ApprovalPolicy(auto_approve_if="true"), handler=handler)
    async with turn_rig.running([tool], [calls(PAY, PAY), respond("done")]) as turns:
        result = await turns.signoff.result(await turns.start())
    half = RESULT_CHARS_PER_BATCH // 2
    assert budgets == [half, half]
    for outcome in result.calls:
        assert (outcome.truncated, outcome.original_chars, outcome.cost) == (True, 60_000, 0.5)
        assert some(outcome.structured).inline == {"rows": 3}
        assert some(outcome.value.blob).size < (half + 100) * 2
