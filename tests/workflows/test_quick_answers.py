import asyncio
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from turn_fixtures import Ledger, RunningTurns, TurnRig, no, pay_tool, yes

from signoff.activities import gate_activity
from signoff.activities.gate_activity import GateActivity
from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts.activity_messages import GateTask
from signoff.contracts.audit import AuditEntry
from signoff.contracts.ids import TurnKey
from signoff.contracts.receipt import Receipt
from signoff.formats.replace import replace
from signoff.registry.gates.pipeline import GateFacts
from signoff.store.questions.request_lists import RequestLists
from signoff.testing.questions import answer
from signoff.testing.scripted_model import calls, respond

SCRIPT = [calls(("pay", {"amount": 20, "to": "Ana"})), respond("done")]


class Held:
    """Gates that store their questions, then wait for `go` in their first batch, or fail after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fails: bool = False) -> None:
        self.go = asyncio.Event()
        self.batches = 0
        write = gate_activity.write

        # This is the gates' last step: their questions are already stored.
        async def held_back(deps: WorkerDeps, entries: Sequence[AuditEntry]) -> None:
            await write(deps, entries)
            self.batches += 1
            if self.batches == 1:
                await self.go.wait()
                if fails:
                    raise ValueError("a fault")

        monkeypatch.setattr(gate_activity, "write", held_back)


async def asked(turns: RunningTurns, key: TurnKey) -> None:
    while not (await RequestLists(turns.store).of_turns([key])).get(key):
        await asyncio.sleep(0.02)


async def taken_in(turns: RunningTurns, key: TurnKey, sending: Coroutine[Any, Any, Receipt]) -> "asyncio.Task[Receipt]":
    """The turn accepts the answer but leaves it open while the gates are held."""
    accepted = "WORKFLOW_EXECUTION_UPDATE_ACCEPTED"
    before = (await turns.events(key)).count(accepted)
    answering = asyncio.create_task(sending)
    await turns.happened(key, accepted, before + 1)
    assert not answering.done()
    return answering


async def held_back(turns: RunningTurns, key: TurnKey, sending: Coroutine[Any, Any, Receipt], held: Held) -> Receipt:
    answering = await taken_in(turns, key, sending)
    held.go.set()
    return await answering


@pytest.mark.parametrize("fails", [False, True])
async def test_answer_before_the_gates_finish_counts(
    turn_rig: TurnRig, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    # The approver answers as soon as the question is stored; the answer waits for its turn, and the call runs. Without
    # `_caught_up` the turn refused it as one to no request, which voids an approval that the gateway accepted.
    held, ledger = Held(monkeypatch, fails=fails), Ledger()
    async with turn_rig.running([pay_tool(ledger)], SCRIPT) as turns:
        key = await turns.start()
        await asked(turns, key)
        receipt = await held_back(turns, key, turns.signoff.decide(yes(key)), held)
        result = await turns.signoff.result(key)
        revisions = (await RequestLists(turn_rig.store).of_turns([key]))[key]
    assert (receipt.status, receipt.state) == ("accepted", "approved")
    assert [call.code for call in result.calls] == ["ok"]
    assert (len(ledger.rows), len(revisions)) == (1, 1)


async def test_withdrawal_before_the_gates_finish_counts(turn_rig: TurnRig, monkeypatch: pytest.MonkeyPatch) -> None:
    held, ledger = Held(monkeypatch), Ledger()
    async with turn_rig.running([pay_tool(ledger)], SCRIPT) as turns:
        key = await turns.start()
        await asked(turns, key)
        wish = replace(no(key), verdict="withdrawn")
        receipt = await held_back(turns, key, turns.signoff.withdraw(wish), held)
        result = await turns.signoff.result(key)
    assert receipt.status == "accepted"
    assert [call.code for call in result.calls] == ["denied"]
    assert ledger.rows == []


async def test_repeated_gate_task_counts_answers_to_the_first(
    turn_rig: TurnRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The gates ask in the model's activity and fail there, an approver approves, and the turn asks the gates again.
    # Without the time of the reply in `CallLoop.batch`, the answered question was asked a second time.
    held, ledger = Held(monkeypatch, fails=True), Ledger()
    async with turn_rig.running([pay_tool(ledger)], SCRIPT) as turns:
        key = await turns.start()
        await asked(turns, key)
        (question,) = (await RequestLists(turn_rig.store).of_turns([key]))[key]
        given = {"question_hash": question.question_hash, "received_at": datetime.now(UTC)}
        decision = yes(key, **given)
        await answer(turn_rig.store, decision)
        receipt = await held_back(turns, key, turns.signoff.decide(decision), held)
        result = await turns.signoff.result(key)
        revisions = (await RequestLists(turn_rig.store).of_turns([key]))[key]
    assert (receipt.status, [call.code for call in result.calls]) == ("accepted", ["ok"])
    assert (len(ledger.rows), len(revisions)) == (1, 1)


async def test_repeated_gate_task_carries_the_time_of_the_reply(
    turn_rig: TurnRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gates fail in the model's activity; `CallLoop.batch` then sends them the same task."""
    seen: list[GateTask] = []
    judged = GateActivity._judge_calls

    async def failing_once(self: GateActivity, task: GateTask, known: GateFacts) -> Any:
        seen.append(task)
        if len(seen) == 1:
            raise ValueError("a fault")
        return await judged(self, task, known)

    monkeypatch.setattr(GateActivity, "_judge_calls", failing_once)
    async with turn_rig.running([pay_tool(Ledger(), False)], SCRIPT) as turns:
        result = await turns.signoff.result(await turns.start())
    assert [call.code for call in result.calls] == ["ok"]
    in_activity, in_turn = seen
    assert in_turn.asked_since is not None
    assert in_turn == in_activity


async def test_answer_to_a_call_without_request_is_refused(turn_rig: TurnRig, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    async with turn_rig.running([pay_tool(Ledger())], SCRIPT) as turns:
        key = await turns.start()
        await asked(turns, key)
        at_once = await turns.signoff.decide(yes(key, "c7.1"))
        assert (at_once.status, at_once.code) == ("refused", "unknown")
        receipt = await held_back(turns, key, turns.signoff.decide(yes(key, "c1.9")), held)
        await turns.signoff.decide(no(key))
        await turns.signoff.result(key)
    assert (receipt.status, receipt.code) == ("refused", "unknown")


async def test_stopped_turn_refuses_a_waiting_answer(turn_rig: TurnRig, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    async with turn_rig.running([pay_tool(Ledger())], SCRIPT) as turns:
        key = await turns.start()
        await asked(turns, key)
        sending = await taken_in(turns, key, turns.signoff.decide(yes(key)))
        await turns.signoff.cancel_turn(key)
        receipt = await sending
        result = await turns.signoff.result(key)
        held.go.set()
    assert receipt.status == "refused"
    assert result.state == "cancelled"
