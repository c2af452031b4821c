import asyncio
from datetime import timedelta
from functools import partial

import pytest
from failures import Failure
from raw_turns import RawTurnClient
from some import some
from sqlalchemy import Connection, text
from temporalio.worker import Worker
from turn_fixtures import (
    ApprovalPolicy,
    Ledger,
    RunningTurns,
    TurnRig,
    catalog_of,
    pay_tool,
    query_workflow,
    withdrawn,
    yes,
)

from signoff.activities.run_once import tool_activities
from signoff.contracts import names
from signoff.contracts.ids import TurnKey, show_code
from signoff.contracts.receipt import Receipt
from signoff.contracts.turn import TurnView
from signoff.formats.replace import replace
from signoff.testing.scripted_model import calls, respond

PAY = ("pay", {"amount": 20, "to": "Ana"})
SCRIPT = [calls(PAY), respond("done")]


async def test_unanswered_request_is_denied_after_its_deadline(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running([pay_tool(ledger)], SCRIPT) as turns:
        key = await turns.start()
        view = await turns.waiting(key)
        await turns.forward(key, hours=24, minutes=1)
        result = await turns.signoff.result(key)
        late = await turns.signoff.decide(yes(key))
    request = some(view.calls[0].approval)
    assert request.opened_at is not None
    assert request.expires_at == request.opened_at + timedelta(hours=24)
    assert [outcome.code for outcome in result.calls] == ["denied"]
    denied = some(result.calls[0].denied)
    assert (denied.source, denied.reason, denied.decided_by) == ("timeout", "Nobody answered in time.", "")
    assert (late.status, late.code, late.state) == ("refused", "expired", "timed_out")
    assert ledger.rows == []


async def test_deadline_timer_summary_shows_the_request_code(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running([pay_tool(ledger)], SCRIPT) as turns:
        key = await turns.start()
        code = some((await turns.waiting(key)).calls[0].approval).code
        history = await turns.client.get_workflow_handle(key.workflow_id).fetch_history()
        timers = [event for event in history.events if event.HasField("timer_started_event_attributes")]
        summaries = [
            (await turns.client.data_converter.decode([timer.user_metadata.summary], [str]))[0] for timer in timers
        ]
        assert summaries == [f"Deadline of {show_code(code)}"]
        await turns.signoff.decide(yes(key))


@pytest.mark.row("N18")
async def test_decision_before_the_deadline_is_accepted(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running([pay_tool(ledger)], SCRIPT) as turns:
        key = await turns.start_waiting()
        await turns.forward(key, hours=23)
        assert (await turns.signoff.view(key)).state == "suspended"
        receipt = await turns.signoff.decide(yes(key))
        result = await turns.signoff.result(key)
    assert (receipt.status, receipt.state) == ("accepted", "approved")
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert len(ledger.rows) == 1


async def test_expired_request_leaves_the_other_call_waiting(turn_rig: TurnRig, ledger: Ledger) -> None:
    tools = [
        pay_tool(ledger, ApprovalPolicy(timeout=60.0)),
        pay_tool(ledger, ApprovalPolicy(timeout=7_200.0), name="wire"),
    ]
    script = [calls(PAY, ("wire", {"amount": 1})), respond("done")]
    async with turn_rig.running(tools, script) as turns:
        key = await turns.start()
        await turns.waiting(key, 2)
        await turns.forward(key, minutes=10)
        view = await turns.until(key, lambda view: _states(view) == ["timed_out", "pending"])
        result = await turns.result_after(yes(key, "c1.2"))
    assert view.state == "suspended"
    assert [outcome.code for outcome in result.calls] == ["denied", "ok"]
    assert [row[0] for row in ledger.rows] == ["wire"]


def _states(view: TurnView) -> list[str]:
    return [call.approval.state for call in view.calls if call.approval is not None]


async def _opened_earlier(turns: RunningTurns, key: TurnKey, span: timedelta) -> None:
    """Move a question's times in the store, whose clock decides: skipped time passes on the server alone."""
    question = await turns.question(key)
    body = replace(question, opened_at=some(question.opened_at) - span).model_dump_json()

    def write(connection: Connection) -> None:
        connection.execute(
            text("UPDATE questions SET body = :body WHERE approval = :id"), {"body": body, "id": question.id}
        )

    await turns.store.run(write)


async def test_deadline_that_passes_without_a_worker_denies_the_call(turn_rig: TurnRig, ledger: Ledger) -> None:
    catalog = catalog_of([pay_tool(ledger, ApprovalPolicy(timeout=3_600))])
    async with turn_rig.running(catalog, SCRIPT) as turns:
        key = await turns.start()
        await turns.suspended(key)
    # Fire the deadline only after the worker stops: on a busy machine, the worker could settle a short deadline
    # itself.
    await turns.fire(key, hours=2)
    await _opened_earlier(turns, key, timedelta(hours=2))
    handle = turn_rig.client.get_workflow_handle(key.workflow_id)
    late = await RawTurnClient(turn_rig.client, task_queue=turn_rig.task_queue).decide(yes(key))
    async with turn_rig.running(catalog, SCRIPT) as turns:
        result = await turns.signoff.result(key)
        receipt = await query_workflow(handle, names.RECEIPT, yes(key).approval_id, result_type=Receipt)
    assert late.status == "pending"
    assert [outcome.code for outcome in result.calls] == ["denied"]
    assert receipt.code == "expired"
    assert ledger.rows == []


@pytest.mark.failure("an earlier approval was not used")
async def test_unused_approval_lapses_and_the_request_is_asked_again(
    turn_rig: TurnRig, failure: Failure, ledger: Ledger
) -> None:
    tool = pay_tool(ledger, ApprovalPolicy(grant_ttl=1.0), task_queue=f"{turn_rig.task_queue}-tools")
    async with turn_rig.running([tool], SCRIPT) as turns:
        key = await turns.start_waiting()
        first = await turns.signoff.decide(yes(key))
        view = await turns.until(key, _asked_again)
        assert ledger.rows == []
        failure.assert_seen(some(view.calls[0].approval).card.note)
        stale = await turns.signoff.decide(yes(key))
        failure.follow("Start a worker for the tool's task queue, then approve again")
        async with Worker(turn_rig.client, task_queue=tool.task_queue, activities=tool_activities(turns.deps)):
            second = await turns.signoff.decide(yes(key, revision=2))
            # A busy machine may need longer than the approval is valid. Then approve the next revision.
            while (view := await turns.until(key, partial(_ended_or_asked, view))).result is None:
                await turns.signoff.decide(yes(key, revision=_revision(view)))
            result = some(view.result)
    assert (first.status, stale.code, second.status) == ("accepted", "stale", "accepted")
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert len(ledger.rows) == 1


async def test_worker_started_after_the_approval_lapsed_runs_nothing(turn_rig: TurnRig, ledger: Ledger) -> None:
    tool = pay_tool(ledger, ApprovalPolicy(grant_ttl=1.0), task_queue=f"{turn_rig.task_queue}-tools")
    async with turn_rig.running([tool], SCRIPT) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key))
        await turns.until(key, _asked_again)
        async with Worker(turn_rig.client, task_queue=tool.task_queue, activities=tool_activities(turns.deps)):
            await turns.signoff.withdraw(withdrawn(key))
            result = await asyncio.wait_for(turns.signoff.result(key), 60)
    assert [outcome.code for outcome in result.calls] == ["denied"]
    assert ledger.rows == []


def _asked_again(view: TurnView) -> bool:
    return _revision(view) == 2


def _ended_or_asked(before: TurnView, view: TurnView) -> bool:
    return view.result is not None or _revision(view) > _revision(before)


def _revision(view: TurnView) -> int:
    request = view.calls[0].approval
    return request.revision if request is not None and request.state == "pending" else 0
