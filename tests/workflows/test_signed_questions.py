from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from raw_turns import wake
from signed_askers import signed_asker
from temporalio.client import Client
from turn_fixtures import GUEST, ApprovalPolicy, Ledger, RunningTurns, TurnRig, catalog_of, pay_tool, running_turns, yes

from signoff.approvals.digest import doubt_digest
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import Decision
from signoff.contracts.ids import TurnKey
from signoff.contracts.receipt import Receipt
from signoff.formats.replace import replace
from signoff.keys.signatures import PrivateKeys, Signer, Verifier, new_key
from signoff.people.directory import development_directory
from signoff.store.store import Store
from signoff.store.tickets import ticket_key
from signoff.testing.builders import a_person
from signoff.testing.questions import answer
from signoff.testing.scripted_model import calls, respond

NOW = datetime.now(UTC)
KEYS = PrivateKeys(keys=(new_key(NOW - timedelta(days=1)),))
SIGNER = Signer(KEYS)
PEOPLE = development_directory([a_person(name) for name in ("ana", "bo")])
SCRIPT = [calls(("pay", {"amount": 420, "to": "Ana"})), respond("done")]


@asynccontextmanager
async def production(
    client: Client, store: Store, queue: str, ledger: Ledger, quorum: int
) -> AsyncIterator[tuple[RunningTurns, TurnKey, ApprovalRequest]]:
    catalog, verifier = (
        catalog_of([pay_tool(ledger, ApprovalPolicy(edit="approve", quorum=quorum))]),
        Verifier(KEYS.public().keys),
    )
    async with running_turns(
        client, store, queue, catalog, SCRIPT, people=PEOPLE, profile="production", verifier=verifier
    ) as turns:
        asker = signed_asker(SIGNER, GUEST, "main", queue, queue, at=NOW)
        key = await turns.start_waiting(session_id=queue, turn_id=queue, principal=asker)
        yield turns, key, await now(turns, key)


async def now(turns: RunningTurns, key: TurnKey) -> ApprovalRequest:
    found = (await turns.signoff.view(key)).calls[0].approval
    assert found is not None
    return found


def signed(key: TurnKey, request: ApprovalRequest, who: str, **fields: object) -> Decision:
    given = {
        "subject": who,
        "revision": request.revision,
        "question_hash": request.question_hash,
        "received_at": datetime.now(UTC),
    }
    return SIGNER.sign_decision(yes(key, **given | fields))


async def given(turns: RunningTurns, decision: Decision) -> Receipt:
    await answer(turns.store, decision)
    return await wake(turns.signoff, turns.store, decision)


async def test_signed_edit_and_signed_vote_run_the_edited_call(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with production(turn_rig.client, turn_rig.store, turn_rig.task_queue, ledger, quorum=2) as (
        turns,
        key,
        request,
    ):
        edit = await given(turns, signed(key, request, "ana", edited_args={"amount": 380, "to": "Ana"}))
        last = await given(turns, signed(key, await now(turns, key), "bo"))
        result = await turns.signoff.result(key)
    assert (edit.status, last.status) == ("accepted", "accepted")
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert [row[1] for row in ledger.rows] == [{"amount": 380, "to": "Ana"}]


async def test_edit_altered_after_signing_is_refused(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with production(turn_rig.client, turn_rig.store, turn_rig.task_queue, ledger, quorum=1) as (
        turns,
        key,
        request,
    ):
        honest = signed(key, request, "ana", edited_args={"amount": 380})
        receipt = await turns.signoff.decide(replace(honest, edited_args={"amount": 9_000}))
        after = await now(turns, key)
        await turns.signoff.cancel_turn(key)
        await turns.signoff.result(key)
    assert (receipt.status, receipt.code) == ("refused", "assurance")
    assert after == request
    assert ledger.rows == []


async def test_only_a_signed_answer_about_that_attempt_repeats_the_call(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with production(turn_rig.client, turn_rig.store, turn_rig.task_queue, ledger, quorum=1) as (
        turns,
        key,
        request,
    ):
        await turn_rig.store.claim(ticket_key(request.digest, 1), workflow=key.workflow_id, call="c1.1", tool="pay")
        await given(turns, signed(key, request, "ana"))
        await turns.until(key, lambda v: v.calls[0].approval is not None and v.calls[0].approval.kind == "in_doubt")
        doubt = await now(turns, key)
        other = await turns.signoff.decide(signed(key, doubt, "bo", question_hash=request.question_hash))
        await given(turns, signed(key, doubt, "bo"))
        result = await turns.signoff.result(key)
    assert other.code == "stale"
    assert doubt.digest == doubt_digest(request.digest, 1)
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert [row[2] for row in ledger.rows] == [f"{request.digest}/2"]


async def test_time_of_an_answer_counts_only_if_signed(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with production(turn_rig.client, turn_rig.store, turn_rig.task_queue, ledger, quorum=1) as (
        turns,
        key,
        request,
    ):
        assert request.expires_at is not None
        late = signed(key, request, "ana", received_at=request.expires_at + timedelta(seconds=1))
        forged = replace(late, received_at=NOW, delivery_id="other")
        receipt = await turns.signoff.decide(forged)
        await given(turns, late)
        result = await turns.signoff.result(key)
    assert (receipt.status, receipt.code) == ("refused", "assurance")
    assert [(call.code, call.denied and call.denied.source) for call in result.calls] == [("denied", "timeout")]
    assert ledger.rows == []
