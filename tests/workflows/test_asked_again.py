import asyncio
from datetime import UTC, datetime, timedelta
from functools import partialmethod
from pathlib import Path

import pytest
from held_worker import EDITED, PAY, PEOPLE, WAYS, catalog_with, held, script
from raw_turns import wake
from temporalio.client import Client
from turn_fixtures import TurnRig, running_turns, yes

from signoff.approvals.digest import question_hash
from signoff.contracts.approval import Question
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.message import user_message
from signoff.contracts.names import ENGINE
from signoff.contracts.person import Principal
from signoff.contracts.receipt import Receipt
from signoff.contracts.turn import TurnInput, TurnResult
from signoff.engine.turn_client import TurnClient
from signoff.formats.replace import replace
from signoff.store.questions.questions import Questions
from signoff.store.store import Store, open_store
from signoff.store.tickets import ticket_key
from signoff.testing.questions import answer

CALLS = {"changed": "c1.1", "in_doubt": "c1.1", "fallback": "c1.1001", "edited": "c1.1"}
PATIENCE = timedelta(seconds=60)


async def asked(store: Store, approval: str, revision: int = 1) -> Question:
    while True:
        rows = await Questions(store).read(approval)
        if rows is not None and rows.latest.revision >= revision:
            return rows.latest
        await asyncio.sleep(0.03)


async def start(signoff: TurnClient, key: TurnKey) -> None:
    turn = TurnInput(
        engine=ENGINE,
        session_id=key.session,
        turn_id=key.turn,
        actor="desk",
        messages=(user_message("go"),),
        principal=Principal(user="guest", name="Guest"),
    )
    await signoff.start_turn(turn)


async def asked_late(signoff: TurnClient, store: Store, way: str, key: TurnKey) -> Question:
    approval = ApprovalKey(key, CALLS[way]).id
    if way == "fallback":
        return await asked(store, approval)
    first = await asked(store, approval)
    if way == "in_doubt":
        # Another worker, which dies, has started the call.
        await store.claim(ticket_key(first.digest, 1), workflow=key.workflow_id, call="c1.1", tool="pay")
    decision = yes(key, question_hash=question_hash(first), received_at=datetime.now(UTC))
    if way == "edited":
        decision = replace(decision, subject="ana", edited_args=EDITED)
    await answer(store, decision)
    sending = asyncio.create_task(wake(signoff, store, decision))
    question = await asked(store, approval, 2)
    # The worker dies while it changes the arguments. The next worker takes in the change again.
    assert sending.done() == (way != "edited")
    return question


async def approved(
    turn_rig: TurnRig, way: str, key: TurnKey, question: Question, ledger: Path
) -> tuple[Receipt, TurnResult]:
    given = {"revision": question.revision, "question_hash": question_hash(question), "received_at": datetime.now(UTC)}
    decision = yes(key, CALLS[way], **given)
    await answer(turn_rig.store, decision)
    signoff = TurnClient(turn_rig.client, task_queue=turn_rig.task_queue, patience=PATIENCE)
    sending = asyncio.create_task(wake(signoff, turn_rig.store, decision))
    async with turn_rig.running(catalog_with(way, ledger), script(way), people=PEOPLE) as back:
        receipt = await sending
        result = await asyncio.wait_for(back.signoff.result(key), 90)
        await back.replays(key)
    return receipt, result


@pytest.mark.parametrize("way", WAYS)
async def test_answer_without_a_worker_counts_for_its_question(
    way: str, client: Client, task_queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The worker dies before its turn hears of the question, an approver approves, and another worker starts. This
    # fails without `_may_come` and, for changed arguments, without the lock in `_caught_up`: the turn refused the
    # answer as one to an unknown revision or call, which voids an approval. Without `asked_since` in the repeated gate
    # task, the approvers were asked the same question again. The server gives up the killed worker's task after three
    # seconds instead of its default ten.
    quicker = partialmethod(Client.start_workflow, task_timeout=timedelta(seconds=3))
    monkeypatch.setattr(Client, "start_workflow", quicker)
    key, url, ledger = TurnKey("main", task_queue, task_queue), f"sqlite:///{tmp_path}/signoff.db", tmp_path / "ledger"
    signoff = TurnClient(client, task_queue=task_queue, patience=PATIENCE)
    async with open_store(url) as store:
        if way == "changed":
            tools = catalog_with(way, ledger, old=True)
            async with running_turns(client, store, task_queue, tools, script(way), people=PEOPLE) as before:
                await start(signoff, key)
                await before.waiting(key)
        async with held(client.service_client.config.target_host, url, task_queue, way, ledger) as process:
            if way != "changed":
                await start(signoff, key)
            question = await asyncio.wait_for(asked_late(signoff, store, way, key), 60)
            process.kill()
            await process.wait()
        receipt, result = await approved(TurnRig(client, store, task_queue), way, key, question, ledger)
        rows = await Questions(store).read(ApprovalKey(key, CALLS[way]).id)
    assert (receipt.status, receipt.state) == ("accepted", "approved")
    assert [call.code for call in result.calls] == ["ok"]
    assert rows is not None
    assert (rows.latest.revision, [each.void for each in rows.answers]) == (
        question.revision,
        [False] * len(rows.answers),
    )
    assert ledger.read_text().splitlines() == [str((EDITED if way == "edited" else PAY)["amount"])]
