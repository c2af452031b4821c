import asyncio
from typing import Any

from some import some
from turn_fixtures import ApprovalPolicy, Ledger, TurnRig, catalog_of, pay_tool, running_turns, withdrawn, yes

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.registry.tool_context import ToolContext
from signoff.testing.scripted_model import ScriptedModel, calls, respond

PAY = ("pay", {"amount": 20, "to": "Ana"})


async def test_cancellation_during_a_request_withdraws_it(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running([pay_tool(ledger)], [calls(PAY), respond("x")]) as turns:
        key = await turns.start_waiting()
        await turns.signoff.cancel_turn(key)
        result = await turns.signoff.result(key)
        receipt = await turns.signoff.decide(yes(key))
        view = await turns.signoff.view(key)
    assert result.state == "cancelled"
    assert [outcome.code for outcome in result.calls] == ["denied"]
    assert (receipt.status, receipt.code, receipt.state) == ("refused", "cancelled", "cancelled")
    assert some(view.calls[0].approval).state == "cancelled"
    assert ledger.rows == []


async def test_cancellation_during_a_tool_run_keeps_its_outcome(turn_rig: TurnRig) -> None:
    ledger, begun, go_on = Ledger(), asyncio.Event(), asyncio.Event()

    async def slow(args: dict[str, Any], ctx: ToolContext) -> str:
        begun.set()
        await go_on.wait()
        ledger.rows.append(("pay", args, ctx.idempotency_key))
        return "paid"

    tool = pay_tool(ledger, False, handler=slow)
    async with turn_rig.running([tool], [calls(PAY), respond("x")]) as turns:
        key = await turns.start()
        await begun.wait()
        await turns.signoff.cancel_turn(key)
        await turns.happened(key, "WORKFLOW_EXECUTION_CANCEL_REQUESTED")
        handle = turn_rig.client.get_workflow_handle(key.workflow_id)
        assert (await turns.signoff.view(key)).result is None
        go_on.set()
        result = await turns.signoff.result(key)
        described = await handle.describe()
    assert result.state == "cancelled"
    assert [(outcome.code, outcome.value.inline) for outcome in result.calls] == [("ok", "paid")]
    assert len(ledger.rows) == 1
    assert some(described.status).name == "COMPLETED"


async def test_cancellation_during_a_completion_ends_the_turn(turn_rig: TurnRig) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def react(_: CompletionRequest) -> Completion:
        begun.set()
        await go_on.wait()
        return respond("never")

    async with turn_rig.running([], ScriptedModel(react)) as turns:
        key = await turns.start()
        await begun.wait()
        await turns.signoff.cancel_turn(key)
        result = await turns.signoff.result(key)
        go_on.set()
    assert (result.state, result.calls) == ("cancelled", ())


async def test_cancellation_of_an_unused_approval_asks_no_approver(turn_rig: TurnRig) -> None:
    policy = ApprovalPolicy(grant_ttl=1.0)
    tool = pay_tool(Ledger(), policy, task_queue=f"{turn_rig.task_queue}-nobody")
    async with turn_rig.running([tool], [calls(PAY), respond("x")]) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key))
        await turns.signoff.cancel_turn(key)
        result = await asyncio.wait_for(turns.signoff.result(key), 60)
    assert result.state == "cancelled"
    assert [outcome.code for outcome in result.calls] == ["skipped"]


async def test_approved_call_not_yet_started_never_starts_after_a_cancellation(turn_rig: TurnRig) -> None:
    ledger, away = Ledger(), f"{turn_rig.task_queue}-away"
    catalog = catalog_of([pay_tool(ledger, task_queue=away)])
    async with turn_rig.running(catalog, [calls(PAY), respond("x")]) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key))
        await turns.until(key, lambda view: view.calls[0].state == "running")
        await turns.signoff.cancel_turn(key)
        result = await asyncio.wait_for(turns.signoff.result(key), 60)
        async with running_turns(turn_rig.client, turn_rig.store, away, catalog, [respond("x")]) as other:
            other_key = await other.start()
            await other.signoff.result(other_key)
    assert (result.state, [outcome.code for outcome in result.calls]) == ("cancelled", ["skipped"])
    assert ledger.rows == []


async def test_withdrawn_request_denies_only_its_own_call(turn_rig: TurnRig, ledger: Ledger) -> None:
    script = [calls(PAY, ("pay", {"amount": 2})), respond("done")]
    async with turn_rig.running([pay_tool(ledger)], script) as turns:
        key = await turns.start()
        await turns.waiting(key, 2)
        receipt = await turns.signoff.withdraw(withdrawn(key, reason="changed my mind"))
        late = await turns.signoff.decide(yes(key))
        again = await turns.signoff.withdraw(withdrawn(key))
        result = await turns.result_after(yes(key, "c1.2"))
        after = await turns.signoff.withdraw(withdrawn(key))
    assert (receipt.status, receipt.state) == ("accepted", "cancelled")
    assert late.code == again.code == after.code == "cancelled"
    assert [outcome.code for outcome in result.calls] == ["denied", "ok"]
    assert result.calls[0].denied is not None
    assert (result.calls[0].denied.source, result.calls[0].denied.reason) == ("cancelled", "changed my mind")
    assert [row[1]["amount"] for row in ledger.rows] == [2]
