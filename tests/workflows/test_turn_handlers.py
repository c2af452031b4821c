import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from raw_turns import RawTurnClient
from some import some
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.enums.v1 import UpdateWorkflowExecutionLifecycleStage
from temporalio.api.update.v1 import Input, Meta, Request, WaitPolicy
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest, UpdateWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError
from turn_fixtures import (
    GUEST,
    ApprovalPolicy,
    Ledger,
    RunningTurns,
    TurnRig,
    catalog_of,
    no,
    pay_tool,
    query_workflow,
    yes,
)

from signoff.contracts import names
from signoff.contracts.ids import TurnKey
from signoff.contracts.message import user_message
from signoff.contracts.receipt import Receipt
from signoff.contracts.turn import TurnInput
from signoff.people.directory import development_directory
from signoff.temporal.encryption import ENCODING, place_of
from signoff.testing.builders import a_person
from signoff.testing.scripted_model import calls, respond

PATIENCE = timedelta(seconds=60)
"""The time that a busy machine may need for fifty questions at once."""
_COMPLETED = UpdateWorkflowExecutionLifecycleStage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED
PAY = ("pay", {"amount": 20, "to": "Ana"})
SCRIPT = [calls(PAY), respond("done")]


def json_payload(text: bytes, encoding: bytes = b"json/plain") -> Payload:
    return Payload(metadata={"encoding": encoding}, data=text)


def sealed_payload(key: str, introduced: bytes = b"") -> Payload:
    metadata = {"encoding": ENCODING, "key": key.encode()} | ({"introduced": introduced} if introduced else {})
    return Payload(metadata=metadata, data=place_of("default", "") + b"x" * 60)


GARBAGE: dict[str, list[Payload]] = {
    "no argument": [],
    "two arguments": [json_payload(b"{}"), json_payload(b"{}")],
    "null": [json_payload(b"null")],
    "binary null": [json_payload(b"", b"binary/null")],
    "a string": [json_payload(b'"approved"')],
    "a number": [json_payload(b"1")],
    "a list": [json_payload(b'[{"verdict": "approved"}]')],
    "an empty object": [json_payload(b"{}")],
    "no verdict": [json_payload(b'{"approval_id": "main.a.b.c1.1"}')],
    "an unknown verdict": [json_payload(b'{"approval_id": "main.a.b.c1.1", "verdict": "yes"}')],
    "a null verdict": [json_payload(b'{"approval_id": "main.a.b.c1.1", "verdict": null}')],
    "numbers for text": [json_payload(b'{"approval_id": 7, "verdict": ["approved"], "revision": "x"}')],
    "bytes": [json_payload(b"\x00\xff\xfe", b"binary/plain")],
    "an unknown encoding": [json_payload(b"{}", b"cipher/aes")],
    "no encoding": [Payload(data=b"{}")],
    "broken json": [json_payload(b'{"approval_id": ')],
    "a lone surrogate": [json_payload(b'{"approval_id": "\\ud800", "verdict": "approved"}')],
    "nan": [json_payload(b'{"approval_id": NaN, "verdict": "approved"}')],
    "deep nesting": [json_payload(b'{"x": ' + b"[" * 3000 + b"]" * 3000 + b"}")],
    "encrypted with a key that nobody has": [sealed_payload("00000000")],
    "encrypted with a key that is said to be introduced": [sealed_payload("00000000", b"deadbeef:0011223344556677")],
    "encrypted without a key": [Payload(metadata={"encoding": ENCODING}, data=b"x" * 60)],
    "encrypted and cut short": [Payload(metadata={"encoding": ENCODING, "key": b"00000000"}, data=b"x")],
    "a huge reason": [json_payload(b'{"approval_id": "x", "verdict": "denied", "reason": "' + b"a" * 70_000 + b'"}')],
}


async def raw_signal(client: Client, key: TurnKey, payloads: list[Payload], name: str = "approval_response") -> None:
    await client.workflow_service.signal_workflow_execution(
        SignalWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=key.workflow_id),
            signal_name=name,
            input=Payloads(payloads=payloads),
        )
    )


async def raw_update(client: Client, key: TurnKey, payloads: list[Payload], name: str) -> str:
    request = UpdateWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=key.workflow_id),
        wait_policy=WaitPolicy(lifecycle_stage=_COMPLETED),
        request=Request(meta=Meta(), input=Input(name=name, args=Payloads(payloads=payloads))),
    )
    answer = await client.workflow_service.update_workflow_execution(request, timeout=timedelta(seconds=10))
    if answer.outcome.HasField("success"):
        return "success"
    return str(await client.data_converter.decode_failure(answer.outcome.failure)).partition(": ")[2]


@pytest.mark.parametrize("name", [names.DECIDE, names.CANCEL, names.APPROVAL_RESPONSE])
async def test_malformed_message_cannot_wedge_or_fail_a_turn(name: str, turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running([pay_tool(ledger)], SCRIPT) as turns:
        key = await turns.start_waiting()
        for what, payloads in GARBAGE.items():
            if name == names.APPROVAL_RESPONSE:
                await raw_signal(turn_rig.client, key, payloads)
            else:
                with contextlib.suppress(RPCError):
                    await raw_update(turn_rig.client, key, payloads, name)
            view = await turns.signoff.view(key)
            assert view.state == "suspended", what
        assert len(await turns.signoff.pending(key)) == 1
        receipt = await turns.signoff.decide(yes(key))
        result = await turns.signoff.result(key)
        events = await turns.events(key)
    assert receipt.status == "accepted"
    assert result.state == "complete"
    assert len(ledger.rows) == 1
    assert "WORKFLOW_TASK_FAILED" not in events


async def test_malformed_decision_is_refused_without_an_event(turn_rig: TurnRig) -> None:
    async with turn_rig.running([pay_tool(Ledger())], SCRIPT) as turns:
        key = await turns.start_waiting()
        # Ask the server: the view may answer before the task ends that suspended the turn.
        await turns.suspended(key)
        before = len(await turns.events(key))
        entries = [
            await raw_update(turn_rig.client, key, GARBAGE[what], names.DECIDE)
            for what in ("null", "a list", "no argument")
        ]
        big = await turns.signoff.decide(no(key, reason="é" * 40_000))
        after = len(await turns.events(key))
        long = await turns.signoff.decide(no(key, reason="é" * 3_000))
    assert entries == ["a decision is one JSON object"] * 3
    assert (big.status, big.code) == ("refused", "malformed")
    assert "65536" in big.message
    assert after == before
    assert (long.status, long.code) == ("refused", "malformed")


async def test_malformed_query_does_not_harm_the_turn(turn_rig: TurnRig) -> None:
    async with turn_rig.running([pay_tool(Ledger())], SCRIPT) as turns:
        key = await turns.start_waiting()
        handle = turn_rig.client.get_workflow_handle(key.workflow_id)
        for args in ([], [None], [[1]], ["nothing"]):
            with contextlib.suppress(RPCError, Exception):
                await handle.query(names.RECEIPT, args=args, result_type=Receipt)
        receipt = await query_workflow(handle, names.RECEIPT, "nothing", result_type=Receipt)
        assert (await turns.signoff.decide(yes(key))).status == "accepted"
        assert (await turns.signoff.result(key)).state == "complete"
    assert receipt.code == "unknown"


async def test_raw_signal_with_approval_id_and_verdict_is_accepted(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running([pay_tool(ledger)], SCRIPT) as turns:
        key = await turns.start_waiting()
        handle = turn_rig.client.get_workflow_handle(key.workflow_id)
        await handle.signal(names.APPROVAL_RESPONSE, {"approval_id": yes(key).approval_id, "verdict": "approved"})
        result = await turns.signoff.result(key)
        request = await turns.signoff.request(yes(key).approval_id)
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert [vote.unsigned for vote in request.votes] == [True]
    assert result.calls[0].decided_by == "unsigned"
    assert len(ledger.rows) == 1


@pytest.mark.row("N09")
async def test_decision_before_its_request_is_unknown(turn_rig: TurnRig, ledger: Ledger) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def first(args: dict[str, Any], ctx: Any) -> str:
        begun.set()
        await go_on.wait()
        return "seen"

    tools = [pay_tool(ledger), pay_tool(ledger, False, name="look", effect="", handler=first)]
    script = [calls(("look", {"amount": 1})), calls(PAY), calls(("pay", {"amount": 21})), respond("done")]
    async with turn_rig.running(tools, script) as turns:
        key = await turns.start()
        await begun.wait()
        early = await turns.signoff.decide(yes(key, "c2.1"))
        go_on.set()
        view = await turns.waiting(key)
        assert view.state == "suspended"
        await turns.signoff.decide(no(key, "c2.1"))
        await turns.until(key, lambda v: len(v.calls) == 3 and v.state == "suspended")
    assert (early.status, early.code) == ("refused", "unknown")
    assert ledger.rows == []


async def test_one_delivery_by_update_and_signal_counts_once(turn_rig: TurnRig) -> None:
    people = development_directory([a_person("ana"), a_person("bo")])
    tool = pay_tool(Ledger(), ApprovalPolicy(quorum=2))
    async with turn_rig.running([tool], SCRIPT, people=people) as turns:
        key = await turns.start_waiting()
        answer = yes(key, subject="ana", delivery_id="d1")
        first = await turns.signoff.decide(answer)
        again = await turns.signoff.decide(answer)
        handle = turn_rig.client.get_workflow_handle(key.workflow_id)
        await handle.signal(names.APPROVAL_RESPONSE, answer.model_dump(mode="json", exclude_none=True))
        other = await turns.signoff.decide(yes(key, subject="ana"))
        waiting = await turns.signoff.request(answer.approval_id)
        last = await turns.signoff.decide(yes(key, subject="bo"))
    assert (first.status, first.votes, first.needed) == ("counted", 1, 2)
    assert again.votes == 1
    assert again.status == "counted"
    assert (other.code, other.votes) == ("duplicate", 1)
    assert [vote.subject for vote in waiting.votes] == ["ana"]
    assert (last.status, last.votes) == ("accepted", 2)


@pytest.mark.row("E58")
async def test_race_of_fifty_has_one_winner_named_in_every_receipt(turn_rig: TurnRig, ledger: Ledger) -> None:
    people = development_directory([a_person(f"p{n}") for n in range(50)])
    async with turn_rig.running([pay_tool(ledger)], SCRIPT, people=people) as turns:
        key = await turns.start_waiting()
        receipts = await asyncio.gather(*(_race(turns, key, number) for number in range(50)))
        result = await turns.signoff.result(key)
    winner = result.calls[0].decided_by
    assert winner in {f"p{n}" for n in range(50)}
    assert [receipt.decided_by for receipt in receipts] == [winner] * 50
    # A winner by signal has no receipt of its own, but a later query returns the same receipt to everyone.
    by_update = [receipt for number, receipt in enumerate(receipts) if number % 2 == 0]
    accepted = sum(receipt.status == "accepted" for receipt in by_update)
    assert accepted == (int(winner.removeprefix("p")) % 2 == 0)
    assert all(receipt.code == "already_decided" for receipt in receipts if receipt.status != "accepted")
    assert len(ledger.rows) == 1


async def _race(turns: RunningTurns, key: TurnKey, number: int) -> Receipt:
    answer = yes(key, subject=f"p{number}")
    if number % 2 == 0:
        return await turns.signoff.decide(answer)
    handle = turns.client.get_workflow_handle(key.workflow_id)
    # The turn may end before the signal arrives. Its receipt can still be queried.
    with contextlib.suppress(RPCError):
        await handle.signal(names.APPROVAL_RESPONSE, answer.model_dump(mode="json", exclude_none=True))
    await turns.signoff.result(key)
    receipt: Receipt = await query_workflow(handle, names.RECEIPT, answer.approval_id, result_type=Receipt)
    return receipt


async def test_late_answer_names_the_decider_after_the_turn_has_ended(turn_rig: TurnRig) -> None:
    async with turn_rig.running([pay_tool(Ledger())], SCRIPT) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(no(key))
        await turns.signoff.result(key)
        late = await turns.signoff.decide(yes(key, subject="guest"))
    blind = await RawTurnClient(turn_rig.client, task_queue=turn_rig.task_queue).decide(yes(key))
    assert (late.status, late.code, late.state, late.decided_by) == ("refused", "already_decided", "denied", "approver")
    assert (blind.status, blind.code) == ("refused", "already_decided")
    assert blind.decided_at is not None


async def test_decision_for_an_unknown_turn_is_refused(client: Client, task_queue: str) -> None:
    signoff = RawTurnClient(client, task_queue=task_queue)
    nowhere = await signoff.decide(yes(TurnKey("main", "s", task_queue)))
    broken = await signoff.decide(yes(TurnKey("main", "s", "t"), approval_id="no id"))
    assert (nowhere.status, nowhere.code) == ("refused", "unknown")
    assert (broken.status, broken.code) == ("refused", "malformed")


@pytest.mark.row("B65", "E63", "V08")
async def test_answer_without_a_worker_is_kept_and_takes_effect_later(turn_rig: TurnRig, ledger: Ledger) -> None:
    catalog = catalog_of([pay_tool(ledger)])
    async with turn_rig.running(catalog, SCRIPT) as turns:
        key = await turns.start_waiting()
    receipt = await RawTurnClient(turn_rig.client, task_queue=turn_rig.task_queue).decide(yes(key))
    async with turn_rig.running(catalog, SCRIPT) as turns:
        result = await turns.signoff.result(key)
        request = await turns.signoff.request(yes(key).approval_id)
    assert (receipt.status, receipt.verdict) == ("pending", "approved")
    assert result.state == "complete"
    assert len(request.votes) == 1
    assert len(ledger.rows) == 1


@pytest.mark.row("V08")
async def test_waiting_turns_survive_eviction_from_the_workers_cache(turn_rig: TurnRig, ledger: Ledger) -> None:
    catalog = catalog_of([pay_tool(ledger)])
    async with turn_rig.running(catalog, SCRIPT, max_cached_workflows=2) as turns:
        keys = [await turns.start() for _ in range(5)]
        for key in keys:
            await turns.suspended(key)
        receipts = [await turns.signoff.decide(yes(key)) for key in reversed(keys)]
        results = [await turns.signoff.result(key) for key in keys]
        events = [event for key in keys for event in await turns.events(key)]
    assert [receipt.status for receipt in receipts] == ["accepted"] * 5
    assert [result.state for result in results] == ["complete"] * 5
    assert len(ledger.rows) == 5
    assert "WORKFLOW_TASK_FAILED" not in events


async def test_turn_of_a_newer_engine_waits_for_a_worker_that_supports_it(
    turn_rig: TurnRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = TurnInput(
        engine=names.ENGINE + 1,
        session_id="s",
        turn_id=turn_rig.task_queue,
        actor="desk",
        messages=(user_message("hi"),),
        principal=GUEST,
    )
    async with turn_rig.running([], [respond("hello")]) as turns:
        handle = await turn_rig.client.start_workflow(
            names.ACTOR_TURN,
            turn,
            id=TurnKey("main", "s", turn_rig.task_queue).workflow_id,
            task_queue=turn_rig.task_queue,
            task_timeout=timedelta(seconds=1),
        )
        async for failure in _task_failures(turn_rig.client, handle):
            assert f"this turn needs engine {turn.engine}, this worker has {turn.engine - 1}" in failure
            break
        described = await handle.describe()
        assert some(described.status).name == "RUNNING"
        monkeypatch.setattr(names, "ENGINE", names.ENGINE + 1)
        result = await turns.signoff.result(TurnKey("main", "s", turn_rig.task_queue))
    assert result.state == "complete"


async def _task_failures(client: Client, handle: Any) -> AsyncIterator[str]:
    async for event in handle.fetch_history_events(wait_new_event=True):
        if event.HasField("workflow_task_failed_event_attributes"):
            failure = event.workflow_task_failed_event_attributes.failure
            yield str(await client.data_converter.decode_failure(failure))
