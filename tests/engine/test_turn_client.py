import asyncio
import gc
from datetime import timedelta
from typing import Any

import pytest
from raw_turns import RawTurnClient, wake
from session_rig import message
from temporalio.client import Client
from turn_fixtures import Ledger, TurnRig, catalog_of, no, pay_tool, withdrawn

from signoff.contracts.decision import Decision
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import SessionKey
from signoff.decisions.answer_taker import Taken
from signoff.decisions.raw_answer_taker import RawAnswerTaker
from signoff.engine.session_client import SessionClient
from signoff.engine.turn_client import TurnClient
from signoff.people.directory import Directory
from signoff.testing.questions import answer
from signoff.testing.scripted_model import calls, respond

SCRIPT = [calls(("pay", {"amount": 20, "to": "Ana"})), respond("done")]


async def test_hint_resent_without_a_worker_counts_once(turn_rig: TurnRig) -> None:
    catalog = catalog_of([pay_tool(Ledger())])
    async with turn_rig.running(catalog, SCRIPT) as turns:
        key = await turns.start_waiting()
    wish = withdrawn(key)
    await answer(turn_rig.store, wish)
    hasty = TurnClient(turn_rig.client, task_queue=turn_rig.task_queue, patience=timedelta(seconds=0.3))
    missed = [await wake(hasty, turn_rig.store, wish) for _ in range(3)]
    async with turn_rig.running(catalog, SCRIPT) as turns:
        receipt = await wake(turns.signoff, turn_rig.store, wish)
        result = await turns.signoff.result(key)
        events = await turns.events(key)
    assert {each.status for each in missed} == {"pending"}
    assert (receipt.status, receipt.state) == ("accepted", "cancelled")
    assert [call.code for call in result.calls] == ["denied"]
    assert events.count("WORKFLOW_EXECUTION_UPDATE_ACCEPTED") <= 1


async def test_message_without_a_worker_logs_no_error(client: Client, task_queue: str) -> None:
    loop, left = asyncio.get_running_loop(), list[dict[str, Any]]()
    key = SessionKey("main", task_queue)
    hasty = RawTurnClient(client, task_queue=task_queue, patience=timedelta(seconds=0.3))
    loop.set_exception_handler(lambda _, context: left.append(context))
    try:
        receipt = await SessionClient(hasty).say(key, message("hello"), actor="desk")
        gc.collect()
        await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(None)
        await client.get_workflow_handle(key.workflow_id).terminate()
    assert receipt.status == "pending"
    assert left == []


async def test_raw_answer_not_taken_for_an_outage_is_taken_when_resent(
    turn_rig: TurnRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The store was away twice: the same answer counts at the third try. Under one and the same update id the server
    # gave the first receipt again, for as long as the turn waited.
    left = [1, 2]
    keep_and_take = RawAnswerTaker.keep_and_take

    async def moody(taker: RawAnswerTaker, key: str, decision: Decision, people: Directory) -> Taken | None:
        if left:
            left.pop()
            raise StoreUnavailable("away for a moment")
        return await keep_and_take(taker, key, decision, people)

    monkeypatch.setattr(RawAnswerTaker, "keep_and_take", moody)
    async with turn_rig.running(catalog_of([pay_tool(Ledger())]), SCRIPT) as turns:
        key = await turns.start_waiting()
        decision = no(key)
        receipts = [await turns.signoff.decide(decision) for _ in range(3)]
        await asyncio.wait_for(turns.signoff.result(key), 60)
    assert [each.code for each in receipts] == ["unavailable", "unavailable", ""]
    assert receipts[-1].status == "accepted"
