import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from raw_turns import RawTurnClient
from signed_askers import signed_asker
from some import some
from turn_fixtures import GUEST, Ledger, TurnRig, catalog_of, no, pay_tool, withdrawn, yes

from signoff.contracts import names
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.engine.workflow_runs import execute_update
from signoff.formats.replace import replace
from signoff.keys.signatures import PrivateKeys, Signer, Verifier, new_key
from signoff.people.directory import development_directory
from signoff.store.questions.questions import Questions
from signoff.testing.builders import a_person
from signoff.testing.questions import answer
from signoff.testing.scripted_model import calls, respond

NOW = datetime.now(UTC)
KEYS = PrivateKeys(keys=(new_key(NOW - timedelta(days=1)),))
SIGNER = Signer(KEYS)
PEOPLE = development_directory([a_person("ana"), Person(id="op", roles=("admin",)), Person(id="eve")])
SCRIPT = [calls(("pay", {"amount": 20, "to": "Ana"})), respond("done")]


@pytest.mark.parametrize(
    ("who", "recorded"), [("guest", "guest"), ("approver", "approver"), ("op", "op"), ("eve", ""), ("nobody", "")]
)
async def test_withdrawal_names_only_authorized_people(who: str, recorded: str, turn_rig: TurnRig) -> None:
    catalog = catalog_of([pay_tool(Ledger())])
    async with turn_rig.running(catalog, SCRIPT, people=PEOPLE) as turns:
        key = await turns.start_waiting()
        receipt = await turns.signoff.withdraw(withdrawn(key, subject=who, reason="no"))
        result = await turns.signoff.result(key)
    assert (receipt.status, receipt.decided_by) == ("accepted", recorded)
    denied = result.calls[0].denied
    assert denied is not None
    assert (denied.source, denied.decided_by, denied.reason) == ("cancelled", recorded, "no")


@pytest.mark.parametrize(
    ("who", "forge", "status", "recorded"),
    [
        ("guest", {}, "accepted", "guest"),
        ("eve", {}, "refused", ""),
        ("guest", {"subject": "op"}, "refused", ""),
        ("guest", {"signature": "", "key_id": ""}, "accepted", ""),
    ],
)
async def test_withdrawal_in_production_needs_a_signature_for_its_name(
    who: str, forge: dict[str, Any], status: str, recorded: str, turn_rig: TurnRig
) -> None:
    verifier = Verifier(KEYS.public().keys)
    catalog = catalog_of([pay_tool(Ledger())])
    async with turn_rig.running(catalog, SCRIPT, people=PEOPLE, profile="production", verifier=verifier) as turns:
        turn = turn_rig.task_queue
        asker = signed_asker(SIGNER, GUEST, "main", turn, turn, at=NOW)
        key = await turns.start_waiting(session_id=turn, turn_id=turn, principal=asker)
        wish = replace(SIGNER.sign_decision(withdrawn(key, subject=who, revision=1, received_at=NOW)), **forge)
        if recorded:
            # As the gateway stores a withdrawal that it accepts.
            await answer(turn_rig.store, wish)
        receipt = await turns.signoff.withdraw(wish)
        waits = len(await turns.signoff.pending(key)) if status == "refused" else 0
        await turns.signoff.cancel_turn(key)
        await turns.signoff.result(key)
    assert (receipt.status, receipt.decided_by) == (status, recorded)
    assert waits == (status == "refused")


async def test_answers_and_withdrawals_are_refused_at_each_others_handler(turn_rig: TurnRig) -> None:
    async with turn_rig.running([pay_tool(Ledger())], SCRIPT) as turns:
        key = await turns.start_waiting()
        handle = turn_rig.client.get_workflow_handle(key.workflow_id)
        body = no(key).model_dump(mode="json", exclude_none=True)
        as_wish = await execute_update(handle, names.CANCEL, body, result_type=Receipt)
        as_answer = await turns.signoff.decide(withdrawn(key))
        pending = await turns.signoff.pending(key)
        bare = await execute_update(handle, names.CANCEL, {"approval_id": pending[0].id}, result_type=Receipt)
        await turns.signoff.result(key)
    assert (as_wish.code, as_answer.code, len(pending)) == ("malformed", "malformed", 1)
    assert (bare.status, bare.decided_by) == ("accepted", "unsigned")


async def test_raw_approval_and_withdrawal_in_one_task_have_one_effect(turn_rig: TurnRig, ledger: Ledger) -> None:
    """Both arrive in one workflow task: each passes its first check before the other has its result."""
    tools = [pay_tool(ledger)]
    async with turn_rig.running(tools, SCRIPT) as turns:
        key = await turns.start_waiting()
    client = RawTurnClient(turn_rig.client, task_queue=turn_rig.task_queue, patience=timedelta(seconds=60))
    sending = [asyncio.create_task(client.withdraw(withdrawn(key)))]
    await asyncio.sleep(0.1)
    sending.append(asyncio.create_task(client.decide(yes(key))))
    await asyncio.sleep(0.1)
    async with turn_rig.running(tools, SCRIPT) as turns:
        withdrawal, approval = await asyncio.gather(*sending)
        result = await turns.signoff.result(key)
    rows = some(await Questions(turn_rig.store).read(yes(key).approval_id))
    outcome = (withdrawal.status, approval.status, len(rows.answers), [call.code for call in result.calls])
    # A busy server may exchange the two.
    assert outcome in [("accepted", "refused", 0, ["denied"]), ("refused", "accepted", 1, ["ok"])]
