import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from gateway_rig import GatewayRig, gateway_rig, turn_of
from sqlalchemy import insert
from temporalio.client import Client

from signoff.contracts import names
from signoff.contracts.receipt import Receipt
from signoff.gateway.repair_task import AnswerDispatcher
from signoff.store.questions.answers import Answers
from signoff.store.questions.questions import Questions
from signoff.store.store import Store
from signoff.store.tables import RAW_ANSWERS


@pytest.fixture
async def rig(client: Client, store: Store) -> AsyncIterator[GatewayRig]:
    """The test runs the repairs."""
    async with gateway_rig(client, store, f"raw-{uuid.uuid4().hex[:12]}", dispatches=False) as found:
        yield found


async def signal(rig: GatewayRig, approval: str, verdict: str, **fields: Any) -> None:
    handle = rig.turns.client.get_workflow_handle(turn_of(approval).workflow_id)
    await handle.signal(names.APPROVAL_RESPONSE, {"approval_id": approval, "verdict": verdict, **fields})


async def update(rig: GatewayRig, approval: str, verdict: str, **fields: Any) -> Receipt:
    handle = rig.turns.client.get_workflow_handle(turn_of(approval).workflow_id)
    body = {"approval_id": approval, "verdict": verdict, **fields}
    return await handle.execute_update(names.DECIDE, body, result_type=Receipt)


async def settled(rig: GatewayRig, approval: str) -> str:
    async with asyncio.timeout(30):
        while (state := (await rig.request(approval)).state) == "pending":
            await asyncio.sleep(0.02)
    return state


async def test_request_denied_by_a_raw_signal_is_denied_in_the_api(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    await signal(rig, approval, "denied", reason="too dear")
    assert await settled(rig, approval) == "denied"
    late = await rig.decide(approval, verdict="approved", revision=1)
    assert (late.status_code, late.json()["code"]) == (409, "already_decided")
    result = await asyncio.wait_for(rig.turns.signoff.result(turn_of(approval)), 60)
    assert [call.code for call in result.calls] == ["denied"]
    assert await rig.runs(approval) == 0


async def test_raw_update_returns_the_earlier_decision(rig: GatewayRig) -> None:
    # The second request keeps the turn open: the server aborts an Update of a turn that ends.
    approval = await rig.asked("pay typed")
    first = await rig.decide(approval, verdict="denied", revision=1, **{"as": "ana"})
    assert first.json()["status"] == "accepted"
    receipt = await update(rig, approval, "approved", subject="bo")
    assert (receipt.status, receipt.code, receipt.decided_by) == ("refused", "already_decided", "ana")


@pytest.mark.timeout(600)
async def test_raw_answer_and_gateway_racing_give_one_winner_in_every_receipt(rig: GatewayRig) -> None:
    winners: set[str] = set()

    async def race(number: int) -> None:
        approval = await rig.asked("pay")
        by_gateway, by_update = ("approved", "denied") if number % 2 else ("denied", "approved")
        told, raw = await asyncio.gather(
            rig.decide(approval, verdict=by_gateway, revision=1, **{"as": "ana"}),
            update(rig, approval, by_update),
        )
        state = await settled(rig, approval)
        receipts = [Receipt.model_validate(told.json()), raw]
        assert [each.status for each in receipts].count("accepted") == 1, (number, receipts)
        winners.add((await rig.request(approval)).decided_by)
        assert {each.verdict for each in receipts} == {state}
        assert {each.decided_by for each in receipts} == {(await rig.request(approval)).decided_by}
        result = await asyncio.wait_for(rig.turns.signoff.result(turn_of(approval)), 60)
        assert [call.code for call in result.calls] == [{"approved": "ok", "denied": "denied"}[state]]
        assert await rig.runs(approval) == (state == "approved")

    for begun in range(0, 30, 6):
        await asyncio.gather(*map(race, range(begun, begun + 6)))
    assert winners <= {"ana", "unsigned"}


async def test_gateway_processes_the_raw_answer_that_a_worker_may_only_keep(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    rig.turns.store.role = "worker"
    receipt = await update(rig, approval, "approved")
    assert (receipt.status, receipt.message) == ("pending", "the answer is kept; a gateway takes it in")
    assert (await rig.request(approval)).state == "pending"
    dispatcher = AnswerDispatcher(rig.deps)
    await dispatcher.step()
    assert await settled(rig, approval) == "approved"
    result = await asyncio.wait_for(rig.turns.signoff.result(turn_of(approval)), 60)
    assert [call.code for call in result.calls] == ["ok"]
    # Each answer counts once.
    await dispatcher.step(older_than=0)
    rows = await Questions(rig.turns.store).read(approval)
    assert rows is not None
    assert len(rows.answers) == 1
    assert await rig.runs(approval) == 1
    assert await Answers(rig.turns.store).list_owed(0, 10) == []


async def test_invalid_raw_rows_delay_no_other(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    rig.turns.store.role = "worker"
    await update(rig, approval, "denied")
    for key, body in (("a", "junk"), ("b", '{"approval_id": "main.x.y.c1.1", "verdict": "approved"}')):
        row = insert(RAW_ANSWERS).values(key=key, approval=approval, body=body, arrived_at=0)
        await rig.turns.store.run(lambda connection, row=row: connection.execute(row).close())
    await AnswerDispatcher(rig.deps).step()
    assert await settled(rig, approval) == "denied"
