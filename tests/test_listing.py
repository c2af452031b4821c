import asyncio
import uuid
from datetime import timedelta

from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from turn_fixtures import ApprovalPolicy, Ledger, catalog_of, pay_tool, running_turns, yes

from signoff.contracts import names
from signoff.contracts.ids import TurnKey
from signoff.contracts.responses import TurnRow
from signoff.engine.turn_list import turn_row, turns
from signoff.store.questions.questions import Questions
from signoff.store.questions.request_lists import RequestLists
from signoff.store.store import Store
from signoff.testing.scripted_model import calls, respond
from signoff.workflows import temporal_metadata


async def _listed(client: Client, requests: RequestLists, key: TurnKey) -> TurnRow:
    while True:
        for row in await turns(client, requests, tenant=key.tenant):
            if row.workflow_id == key.workflow_id and row.state == "suspended":
                return row
        await asyncio.sleep(0.05)


async def test_row_has_the_open_requests_of_its_turn_in_the_store(
    client: Client, store: Store, task_queue: str
) -> None:
    soon = ApprovalPolicy(approvers=("user:cfo",), timeout=3_600)
    tools = [pay_tool(Ledger()), pay_tool(Ledger(), soon, name="wire")]
    script = [calls(("pay", {"amount": 20}), ("wire", {"amount": 30})), respond("done")]
    requests = RequestLists(store)
    async with running_turns(client, store, task_queue, catalog_of(tools), script) as running:
        key = await running.start()
        asked = {call.tool: call.approval for call in (await running.waiting(key, 2)).calls}
        row = await _listed(client, requests, key)
        assert asked["pay"] is not None
        await Questions(store).end(asked["pay"].id, 1, "cancelled")
        after = await turn_row(client, requests, key)
        await running.signoff.cancel_turn(key)
        await running.signoff.result(key)
    assert asked["wire"] is not None
    assert asked["wire"].opened_at is not None
    assert set(row.codes) == {asked["pay"].code, asked["wire"].code}
    assert (row.requester, set(row.approvers)) == ("guest", {*asked["pay"].approvers, "user:cfo"})
    assert row.due_at == asked["wire"].opened_at + timedelta(hours=1)
    assert after is not None
    assert (after.codes, after.approvers) == ((asked["wire"].code,), row.approvers)


async def test_temporal_finds_turns_by_the_tools_of_waiting_calls(
    client: Client, store: Store, task_queue: str
) -> None:
    tools = [pay_tool(Ledger()), pay_tool(Ledger(), name="wire")]
    script = [calls(("wire", {"amount": 20}), ("pay", {"amount": 30}), ("pay", {"amount": 40})), respond("done")]
    async with running_turns(client, store, task_queue, catalog_of(tools), script) as running:
        key = await running.start()
        await running.waiting(key, 3)
        query = f'WorkflowId = "{key.workflow_id}" AND {names.SA_TOOL} = '
        while not (await client.count_workflows(f'{query}"pay"')).count:
            await asyncio.sleep(0.05)
        handle = client.get_workflow_handle(key.workflow_id)
        assert (await handle.describe()).typed_search_attributes.get(temporal_metadata.TOOL) == ["pay", "wire"]
        assert (await running.signoff.decide(yes(key))).status == "accepted"
        while (await client.count_workflows(f'{query}"wire"')).count:
            await asyncio.sleep(0.05)
        await running.signoff.cancel_turn(key)
        await running.signoff.result(key)
        while (await client.count_workflows(f'{query}"pay"')).count:
            await asyncio.sleep(0.05)


async def test_memo_or_search_attribute_makes_no_request(client: Client, store: Store) -> None:
    key = TurnKey(f"claims{uuid.uuid4().hex[:8]}", "s", "t1")
    handle = await client.start_workflow(
        names.ACTOR_TURN,
        id=key.workflow_id,
        task_queue="nobody",
        memo={"signoff_cards": [{"id": "main.s.t1.c1.1", "code": "K7Q2FM", "approvers": ["user:eve"]}]},
        search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(temporal_metadata.STATE, "suspended"),
                SearchAttributePair(temporal_metadata.TENANT, key.tenant),
            ]
        ),
    )
    row = await _listed(client, RequestLists(store), key)
    await handle.terminate()
    assert (row.codes, row.approvers, row.due_at) == ((), (), None)
