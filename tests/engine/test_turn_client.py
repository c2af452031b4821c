import asyncio
import gc
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from raw_turns import RawTurnClient
from session_rig import message
from temporalio.client import Client
from turn_fixtures import Ledger, TurnRig, catalog_of, no, pay_tool, withdrawn

from signoff.contracts.approval import Vote
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import SessionKey
from signoff.engine.session_client import SessionClient
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.store.questions.answers import Answers
from signoff.testing.questions import answer
from signoff.testing.scripted_model import calls, respond

SCRIPT = [calls(("pay", {"amount": 20, "to": "Ana"})), respond("done")]


async def test_withdrawal_resent_while_the_first_waits_counts_once(turn_rig: TurnRig) -> None:
    # No worker runs, and a dispatcher retries: the turn is withdrawn once after a worker returns. Without its own
    # id each retry was another Update, and a server takes ten of a turn at a time.
    catalog = catalog_of([pay_tool(Ledger())])
    async with turn_rig.running(catalog, SCRIPT) as turns:
        key = await turns.start_waiting()
    wish = withdrawn(key)
    hasty = RawTurnClient(turn_rig.client, task_queue=turn_rig.task_queue, patience=timedelta(seconds=0.3))
    missed = [await hasty.withdraw(wish) for _ in range(3)]
    async with turn_rig.running(catalog, SCRIPT) as turns:
        receipt = await turns.signoff.withdraw(wish)
        await turns.signoff.result(key)
        events = await turns.events(key)
    assert {each.code for each in missed} == {"unavailable"}
    assert (receipt.status, receipt.state) == ("accepted", "cancelled")
    assert events.count("WORKFLOW_EXECUTION_UPDATE_ACCEPTED") == 1


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


@pytest.mark.parametrize("way", ["decide", "withdraw"])
async def test_answer_not_judged_for_an_outage_is_judged_when_resent(
    way: str, turn_rig: TurnRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The store was away twice: the same answer counts at the third try. Under one and the same update id the server
    # gave the first receipt again, for as long as the turn waited.
    signer = Signer(PrivateKeys(keys=(new_key(datetime.now(UTC)),)))
    catalog, left = catalog_of([pay_tool(Ledger())]), [1, 2]
    votes_of = Answers.votes_of

    async def moody(answers: Answers, approval: str, delivery: str) -> list[Vote]:
        if left:
            left.pop()
            raise StoreUnavailable("away for a moment")
        return await votes_of(answers, approval, delivery)

    monkeypatch.setattr(Answers, "votes_of", moody)
    async with turn_rig.running(catalog, SCRIPT, verifier=signer.verifier()) as turns:
        key = await turns.start()
        asked = (await turns.waiting(key)).calls[0].approval
        assert asked is not None
        bound = {"revision": 1, "question_hash": asked.question_hash, "received_at": datetime.now(UTC)}
        decision = signer.sign_decision(withdrawn(key, **bound) if way == "withdraw" else no(key, **bound))
        # Like the gateway with a valid answer.
        await answer(turn_rig.store, decision)
        send = turns.signoff.withdraw if way == "withdraw" else turns.signoff.decide
        entries = [await send(decision) for _ in range(3)]
        await asyncio.wait_for(turns.signoff.result(key), 60)
    assert [each.code for each in entries] == ["unavailable", "unavailable", ""]
    assert entries[-1].status == "accepted"
