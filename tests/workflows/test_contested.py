import asyncio
import contextlib
from collections import Counter

import pytest
from temporalio.service import RPCError
from turn_fixtures import Ledger, TurnRig, catalog_of, no, pay_tool, query_workflow, yes

from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts import names
from signoff.contracts.ids import TurnKey
from signoff.contracts.receipt import Receipt
from signoff.people.directory import Directory, development_directory
from signoff.testing.builders import a_person
from signoff.testing.scripted_model import ScriptedModel, calls, respond, results

PEOPLE = development_directory([a_person(f"p{n}") for n in range(12)])
MODEL = ScriptedModel(lambda asked: respond("done") if results(asked) else calls(("pay", {"amount": 20, "to": "Ana"})))


@pytest.mark.timeout(300)
async def test_contested_turn_with_concurrent_queries_replays(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running([pay_tool(ledger)], MODEL, people=PEOPLE) as turns:
        for round_number in range(4):
            key = await turns.start_waiting()
            handle = turn_rig.client.get_workflow_handle(key.workflow_id)
            over = asyncio.Event()

            async def look(key: TurnKey = key, over: asyncio.Event = over) -> None:
                while not over.is_set():
                    with contextlib.suppress(Exception):
                        await turns.signoff.view(key)

            async def decide(number: int, key: TurnKey = key) -> Receipt | None:
                decision = yes(key, subject=f"p{number}")
                if number % 3:
                    return await turns.signoff.decide(decision)
                body = decision.model_dump(mode="json", exclude_none=True)
                with contextlib.suppress(RPCError):
                    await turn_rig.client.get_workflow_handle(key.workflow_id).signal(names.APPROVAL_RESPONSE, body)
                return None

            looking = [asyncio.create_task(look()) for _ in range(4)]
            answers = await asyncio.gather(*(decide(number) for number in range(12)))
            result = await turns.signoff.result(key)
            over.set()
            await asyncio.gather(*looking)
            assert [outcome.code for outcome in result.calls] == ["ok"]
            assert len(ledger.rows) == round_number + 1
            assert Counter(receipt.status for receipt in answers if receipt is not None)["accepted"] <= 1
            receipt = await query_workflow(handle, names.RECEIPT, result.calls[0].approval_id, result_type=Receipt)
            assert receipt.decided_by in {f"p{number}" for number in range(12)}
            await turns.replays(key)


async def test_first_answer_wins_although_its_author_is_identified_last(
    turn_rig: TurnRig, monkeypatch: pytest.MonkeyPatch, ledger: Ledger
) -> None:
    directory_for = WorkerDeps.directory_for

    async def slow(deps: WorkerDeps, tenant: str, *ids: str) -> Directory:
        await asyncio.sleep(0.1 if "p0" in ids else 0)
        return await directory_for(deps, tenant, *ids)

    monkeypatch.setattr(WorkerDeps, "directory_for", slow)
    catalog = catalog_of([pay_tool(ledger)])
    async with turn_rig.running(catalog, MODEL, people=PEOPLE) as turns:
        key = await turns.start_waiting()
    handle = turn_rig.client.get_workflow_handle(key.workflow_id)
    for decision in (no(key, subject="p0"), yes(key, subject="p1"), yes(key, subject="p2")):
        await handle.signal(names.APPROVAL_RESPONSE, decision.model_dump(mode="json", exclude_none=True))
    async with turn_rig.running(catalog, MODEL, people=PEOPLE) as turns:
        result = await turns.signoff.result(key)
        assert [outcome.code for outcome in result.calls] == ["denied"]
        assert ledger.rows == []
        await turns.replays(key)
        receipt = await query_workflow(handle, names.RECEIPT, result.calls[0].approval_id, result_type=Receipt)
    assert receipt.decided_by == "p0"
