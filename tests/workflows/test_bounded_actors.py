import pytest
from turn_fixtures import Ledger, TurnRig, pay_tool, yes

from signoff.registry.actor import Actor, Autonomy
from signoff.registry.catalog import build_catalog
from signoff.testing.scripted_model import calls, respond


@pytest.mark.row("P19")
async def test_autonomy_rules_decide_by_call_arguments(turn_rig: TurnRig, ledger: Ledger) -> None:
    bounds = Autonomy(unasked_if="args.amount < 50", deny_if="args.amount > 100")
    actor = Actor(name="desk", model="scripted", autonomy=bounds)
    catalog = build_catalog(tools=[pay_tool(ledger, False)], actors=[actor])
    model = [calls(*(("pay", {"amount": amount, "to": "Ana"}) for amount in (49, 60, 101))), respond("done")]
    async with turn_rig.running(catalog, model) as turns:
        key = await turns.start_waiting()
        request = await turns.question(key, "c1.2")
        result = await turns.result_after(yes(key, "c1.2"))
        await turns.replays(key)
    assert request.rule.label == "global:desk.autonomy.unasked_if"
    assert [(each.code, each.decided_by) for each in result.calls] == [("ok", ""), ("ok", "approver"), ("denied", "")]
    assert sorted(args["amount"] for _, args, _ in ledger.rows) == [49, 60]
