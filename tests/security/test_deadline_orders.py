import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from gateway_rig import SIGNER
from signed_askers import signed_asker
from temporalio.client import Client
from turn_fixtures import (
    GUEST,
    ApprovalPolicy,
    Ledger,
    RunningTurns,
    catalog_of,
    pay_tool,
    query_workflow,
    running_turns,
    yes,
)

from signoff.audit.log import AuditLog
from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import Decision
from signoff.contracts.ids import TurnKey
from signoff.contracts.receipt import Receipt
from signoff.registry.tool import Tool
from signoff.store.store import Store
from signoff.testing.questions import answer
from signoff.testing.scripted_model import calls, respond


@asynccontextmanager
async def turns_for(client: Client, store: Store, queue: str, *tools: Tool) -> AsyncIterator[RunningTurns]:
    script = [calls(*((tool.name, {"amount": 420, "to": "Ana"}) for tool in tools)), respond("done")]
    verifier = SIGNER.verifier()
    async with running_turns(
        client, store, queue, catalog_of(tools), script, profile="production", verifier=verifier
    ) as turns:
        yield turns


async def begun(turns: RunningTurns, count: int = 1) -> tuple[TurnKey, ApprovalRequest]:
    turn = f"t{uuid.uuid4().hex[:12]}"
    asker = signed_asker(SIGNER, GUEST, "main", turn, turn, at=datetime.now(UTC))
    key = await turns.start(session_id=turn, turn_id=turn, principal=asker)
    request = (await turns.waiting(key, count)).calls[0].approval
    assert request is not None
    return key, request


def answered(key: TurnKey, request: ApprovalRequest, after: float) -> Decision:
    """`after` is in seconds, negative before the deadline."""
    assert request.expires_at is not None
    received = request.expires_at + timedelta(seconds=after)
    return signed(key, request, received)


def signed(key: TurnKey, request: ApprovalRequest, received: datetime) -> Decision:
    return SIGNER.sign_decision(yes(key, question_hash=request.question_hash, received_at=received))


async def receipt_of(client: Client, key: TurnKey) -> Receipt:
    handle = client.get_workflow_handle(key.workflow_id)
    receipt: Receipt = await query_workflow(handle, names.RECEIPT, yes(key).approval_id, result_type=Receipt)
    return receipt


@pytest.mark.parametrize(("after", "code", "state"), [(-0.2, "ok", "approved"), (0.2, "denied", "timed_out")])
async def test_time_of_receipt_decides_without_a_worker(
    after: float, code: str, state: str, client: Client, store: Store, task_queue: str
) -> None:
    ledger = Ledger()
    tool = pay_tool(ledger, ApprovalPolicy(timeout=3_600))
    async with turns_for(client, store, task_queue, tool) as turns:
        key, request = await begun(turns)
        await turns.suspended(key)
    handle = client.get_workflow_handle(key.workflow_id)
    # Fire the deadline only after the worker stops: on a busy machine, the worker could settle a short deadline
    # itself.
    await turns.fire(key, hours=2)
    decision = answered(key, request, after)
    await answer(store, decision)
    body = decision.model_dump(mode="json", exclude_none=True)
    await handle.signal(names.APPROVAL_RESPONSE, body)
    async with turns_for(client, store, task_queue, tool) as turns:
        result = await turns.signoff.result(key)
        receipt = await receipt_of(client, key)
    assert [outcome.code for outcome in result.calls] == [code]
    assert receipt.state == state
    assert len(ledger.rows) == (code == "ok")


async def test_answer_stamped_after_the_deadline_is_refused_before_it(
    client: Client, store: Store, task_queue: str
) -> None:
    ledger = Ledger()
    async with turns_for(client, store, task_queue, pay_tool(ledger)) as turns:
        key, request = await begun(turns)
        late = await turns.signoff.decide(answered(key, request, 1))
        decision = signed(key, request, datetime.now(UTC))
        await answer(store, decision)
        in_time = await turns.signoff.decide(decision)
        result = await turns.signoff.result(key)
    assert (late.status, late.code) == ("refused", "assurance")
    assert in_time.status == "accepted"
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert len(ledger.rows) == 1


@pytest.mark.parametrize("after", [-1, 1])
async def test_late_answer_does_not_change_an_expired_request(
    after: float, client: Client, store: Store, task_queue: str
) -> None:
    ledger = Ledger()
    tools = [
        pay_tool(ledger, ApprovalPolicy(timeout=14 * 86_400.0)),
        pay_tool(ledger, ApprovalPolicy(timeout=56 * 86_400.0), name="wire"),
    ]
    async with turns_for(client, store, task_queue, *tools) as turns:
        key, request = await begun(turns, 2)
        await turns.forward(key, days=21)
        await turns.until(key, lambda view: _state(view) == "timed_out")
        decision = answered(key, request, after)
        await answer(store, decision)
        receipt = await turns.signoff.decide(decision)
        await turns.signoff.cancel_turn(key)
        result = await turns.signoff.result(key)
        records = await AuditLog(store).stream(key.workflow_id)
    assert (receipt.status, receipt.code, receipt.state) == ("refused", "expired", "timed_out")
    assert result.calls[0].denied is not None
    assert result.calls[0].denied.source == "timeout"
    assert ledger.rows == []
    (attempt,) = [record for record in records if record.kind == "attempt"]
    assert (attempt.facts["claimed_subject"], attempt.facts["receipt"]) == ("approver", "expired")


def _state(view: Any) -> str:
    request = view.calls[0].approval
    return "" if request is None else str(request.state)
