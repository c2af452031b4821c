import asyncio
from typing import Any

from some import some
from turn_fixtures import (
    ApprovalPolicy,
    Ledger,
    TurnRig,
    doubted,
    pay_tool,
    yes,
)

from signoff.audit.log import AuditLog
from signoff.registry.tool_context import ToolContext
from signoff.testing.scripted_model import calls, respond

SCRIPT = [calls(("pay", {"amount": 20, "to": "Ana"})), respond("done")]
FREE = ApprovalPolicy(auto_approve_if="args.amount < 50.0")


def slow(ledger: Ledger) -> Any:
    async def run(args: dict[str, Any], ctx: ToolContext) -> str:
        ledger.rows.append(("pay", args, ctx.idempotency_key))
        await asyncio.Event().wait()
        return "paid"

    return run


async def test_reset_does_not_ask_again_about_a_lost_call(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running([pay_tool(ledger)], SCRIPT) as turns:
        key = await turns.start()
        request = await turns.lose(key)
        await turns.until(key, doubted)
        await turns.signoff.decide(yes(key, revision=2, verdict="happened", result="booking 7"))
        first = await turns.signoff.result(key)
        ticket = await turn_rig.store.read_ticket(request.digest)
        await turns.reset(key)
        again = await turns.signoff.result(key)
        view = await turns.signoff.view(key)
    outcome = some(some(ticket).outcome)
    assert (some(ticket).state, outcome.value.inline, outcome.decided_by) == ("done", "booking 7", "approver")
    outcomes = [(each.code, each.value, each.decided_by) for each in first.calls]
    assert [(each.code, each.value, each.decided_by) for each in again.calls] == outcomes
    assert not doubted(view)
    assert ledger.rows == []
    written = [
        record.facts for record in await AuditLog(turn_rig.store).stream(key.workflow_id) if record.kind == "outcome"
    ]
    assert [(facts["code"], facts["ticket"]) for facts in written] == [("ok", request.digest)]


async def test_reset_does_not_ask_again_about_a_timed_out_call(turn_rig: TurnRig, ledger: Ledger) -> None:
    tool = pay_tool(ledger, FREE, handler=slow(ledger), timeout=0.2)
    async with turn_rig.running([tool], SCRIPT) as turns:
        key = await turns.start()
        await turns.until(key, doubted)
        await turns.signoff.decide(yes(key, verdict="happened"))
        first = await turns.signoff.result(key)
        await turns.reset(key)
        again = await turns.signoff.result(key)
        view = await turns.signoff.view(key)
    assert [(outcome.code, outcome.value.inline) for outcome in first.calls] == [("ok", "It happened.")]
    assert again.calls == first.calls
    assert view.calls[0].approval is None
    assert len(ledger.rows) == 1
