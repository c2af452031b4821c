"""A hosted Temporal bills history events."""

from temporalio.client import Client
from turn_fixtures import ApprovalPolicy, Ledger, TurnRig, catalog_of, pay_tool, running_turns, yes

from signoff.store.store import Store
from signoff.testing.scripted_model import calls, respond

SCRIPT = [calls(("pay", {"amount": 20, "to": "Ana"})), respond("done")]


_TURNS = 4
"""A busy machine sometimes splits a step into two workflow tasks. No turn may cost less than the minimum."""


async def test_automatic_turn_costs_23_events(turn_rig: TurnRig, ledger: Ledger) -> None:
    tool = pay_tool(ledger, ApprovalPolicy(auto_approve_if="args.amount < 50.0"))
    costs = []
    async with turn_rig.running([tool], SCRIPT) as turns:
        while len(costs) < _TURNS and min(costs, default=24) > 23:
            key = await turns.start()
            result = await turns.signoff.result(key)
            costs.append(len(await turns.events(key)))
            assert result.state == "complete"
            assert [outcome.code for outcome in result.calls] == ["ok"]
            assert len(ledger.rows) == len(costs)
    assert min(costs) == 23, costs


async def test_human_turn_costs_33_events(plain_client: Client, store: Store, task_queue: str) -> None:
    ledger = Ledger()
    costs = []
    async with running_turns(plain_client, store, task_queue, catalog_of([pay_tool(ledger)]), SCRIPT) as turns:
        while len(costs) < _TURNS and min(costs, default=34) > 33:
            key = await turns.start_waiting()
            receipt = await turns.signoff.decide(yes(key))
            result = await turns.signoff.result(key)
            costs.append(len(await turns.events(key)))
            assert receipt.status == "accepted", receipt
            assert [outcome.code for outcome in result.calls] == ["ok"]
            assert result.calls[0].decided_by == "approver"
            assert len(ledger.rows) == len(costs)
        described = await plain_client.get_workflow_handle(key.workflow_id).describe()
    assert min(costs) == 33, costs
    assert described.raw_description.workflow_execution_info.history_size_bytes <= 9_200


async def test_worker_with_the_clients_connection_gets_the_first_task_eagerly(turn_rig: TurnRig) -> None:
    tool = pay_tool(Ledger(), ApprovalPolicy(auto_approve_if="args.amount < 50.0"))
    async with turn_rig.running([tool], SCRIPT) as turns:
        key = await turns.start()
        await turns.signoff.result(key)
        handle = turn_rig.client.get_workflow_handle(key.workflow_id)
        first = await anext(aiter(handle.fetch_history_events(page_size=1)))
    assert first.workflow_execution_started_event_attributes.eager_execution_accepted
