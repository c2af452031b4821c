import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from some import some
from turn_fixtures import (
    ApprovalPolicy,
    Ledger,
    RunningTurns,
    TurnRig,
    catalog_of,
    no,
    pay_tool,
    withdrawn,
    yes,
)

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.content import text_of
from signoff.contracts.ids import ApprovalKey, TurnKey, show_code
from signoff.contracts.message import ResultPart
from signoff.registry.actor import Actor
from signoff.registry.tool_result import ToolFailure
from signoff.testing.builders import a_person
from signoff.testing.scripted_model import ScriptedModel, calls, respond

ON = ApprovalPolicy(while_waiting="continue")
PAY = ("pay", {"amount": 20, "to": "Ana"})
LOOK = ("look", {"amount": 1})


def summary(request: CompletionRequest) -> list[ResultPart]:
    return [part for message in request.messages for part in message.parts if isinstance(part, ResultPart)]


def tools(ledger: Ledger, **fields: Any) -> list[Any]:
    look = pay_tool(ledger, False, name="look", effect="", read_only=True)
    return [pay_tool(ledger, ON, **fields), look]


class Model:
    def __init__(self, *script: Completion | Callable[[CompletionRequest], Completion], held: int = 0) -> None:
        self.script = script
        self.held = held
        self.asked: list[CompletionRequest] = []
        self.is_held = asyncio.Event()
        self.goes_on = asyncio.Event()

    @property
    def driver(self) -> ScriptedModel:
        return ScriptedModel(self._react)

    async def _react(self, request: CompletionRequest) -> Completion:
        self.asked.append(request)
        number = sum(message.role == "assistant" for message in request.messages)
        if number + 1 == self.held:
            self.is_held.set()
            await self.goes_on.wait()
        step = self.script[min(number, len(self.script) - 1)]
        return step(request) if callable(step) else step


def codes(parts: list[ResultPart]) -> list[tuple[str, str, bool]]:
    return [(part.call, part.type, part.late) for part in parts]


def words(part: ResultPart) -> str:
    return " ".join(filter(None, (part.note, text_of(part.value))))


@pytest.mark.row("B65")
async def test_model_continues_and_reads_the_outcome_when_it_arrives(turn_rig: TurnRig) -> None:
    ledger, model = Ledger(), Model(calls(PAY), calls(LOOK), respond("asked for it"), respond("paid"))
    async with turn_rig.running(tools(ledger), model.driver) as turns:
        key = await turns.start()
        view = await turns.until(key, lambda seen: any(call.call == "c2.1" and call.outcome for call in seen.calls))
        code = show_code((await turns.question(key)).code)
        first = next(part for part in await turns.results(key) if part.call == "c1.1")
        assert (first.type, first.value.inline) == ("ToolWaiting", f"waiting for approval, {code}")
        assert (view.state, view.calls[0].state, view.calls[0].outcome) == ("suspended", "waiting", None)
        assert [name for name, *_ in ledger.rows] == ["look"]
        await turns.until(key, lambda seen: sum(message.role == "assistant" for message in seen.messages) == 3)
        assert (await turns.signoff.decide(yes(key))).status == "accepted"
        result = await turns.signoff.result(key)
        assert (result.state, result.text) == ("complete", "paid")
        assert [(call.call, call.code) for call in result.calls] == [("c1.1", "ok"), ("c2.1", "ok")]
        parts = await turns.results(key)
        assert codes(parts) == [
            ("c1.1", "ToolWaiting", False),
            ("c2.1", "ToolResult", False),
            ("c3.1", "ToolWaiting", False),
            ("c1.1", "ToolResult", True),
        ]
        assert words(parts[-1]) == f"Outcome of c1.1 (`pay`), which waited for approval, {code}: ToolResult. paid"
        await turns.replays(key)
    assert [name for name, *_ in ledger.rows] == ["look", "pay"]


async def test_late_denial_reaches_the_model_as_tool_denied(turn_rig: TurnRig) -> None:
    model = Model(calls(PAY), respond("asked for it"), respond("so be it"))
    async with turn_rig.running(tools(Ledger()), model.driver) as turns:
        key = await turns.start_waiting()
        result = await turns.result_after(no(key))
        assert (result.text, [call.code for call in result.calls]) == ("so be it", ["denied"])
        last = (await turns.results(key))[-1]
        assert (last.type, last.late) == ("ToolDenied", True)
        assert isinstance(last.value.inline, dict)
        assert (last.value.inline["type"], last.value.inline["reason"]) == ("ToolDenied", "too expensive")
        await turns.replays(key)


@pytest.mark.parametrize("verdict", [yes, no])
async def test_outcome_that_arrives_during_a_completion_is_read_next(
    turn_rig: TurnRig, verdict: Callable[[TurnKey], Any]
) -> None:
    model = Model(calls(PAY), respond("too early"), respond("in time"), held=2)
    async with turn_rig.running(tools(Ledger()), model.driver) as turns:
        key = await turns.start()
        await model.is_held.wait()
        await turns.signoff.decide(verdict(key))
        await turns.until(key, lambda seen: seen.calls[0].outcome is not None)
        model.goes_on.set()
        assert (await turns.signoff.result(key)).text == "in time"
        assert [late for *_, late in codes(await turns.results(key))] == [False, False, True]
        await turns.replays(key)
    assert len(model.asked) == 3


async def test_outcome_that_arrives_during_another_call_is_read_after_it(turn_rig: TurnRig) -> None:
    ledger, runs, ends = Ledger(), asyncio.Event(), asyncio.Event()

    async def slow(args: dict[str, Any], ctx: Any) -> str:
        runs.set()
        await ends.wait()
        return "looked"

    look = pay_tool(ledger, False, name="look", effect="", read_only=True, handler=slow)
    model = Model(calls(PAY), calls(LOOK), respond("both"))
    catalog = catalog_of([pay_tool(ledger, ON), look])
    async with turn_rig.running(catalog, model.driver) as turns:
        key = await turns.start()
        await runs.wait()
        await turns.signoff.decide(yes(key))
        await turns.until(key, lambda seen: seen.calls[0].outcome is not None)
        ends.set()
        assert (await turns.signoff.result(key)).text == "both"
        parts = await turns.results(key)
        await turns.replays(key)
    assert codes(parts) == [("c1.1", "ToolWaiting", False), ("c2.1", "ToolResult", False), ("c1.1", "ToolResult", True)]
    assert len(model.asked) == 3


async def test_concurrent_outcomes_are_read_together_in_call_order(turn_rig: TurnRig) -> None:
    model = Model(calls(PAY, ("pay", {"amount": 21})), respond("early"), respond("both"), held=2)
    async with turn_rig.running(tools(Ledger()), model.driver) as turns:
        key = await turns.start()
        await model.is_held.wait()
        await asyncio.gather(turns.signoff.decide(no(key, "c1.2")), turns.signoff.decide(yes(key, "c1.1")))
        await turns.until(key, lambda seen: all(call.outcome is not None for call in seen.calls))
        model.goes_on.set()
        assert (await turns.signoff.result(key)).text == "both"
        parts = [each for each in await turns.results(key) if each.late]
        await turns.replays(key)
    assert codes(parts) == [("c1.1", "ToolResult", True), ("c1.2", "ToolDenied", True)]
    assert len(model.asked) == 3


async def test_turn_waits_at_its_end_for_each_outcome(turn_rig: TurnRig) -> None:
    model = Model(
        calls(PAY, ("pay", {"amount": 21})),
        lambda request: respond(f"{sum(part.late for part in summary(request))} of 2 decided"),
    )
    async with turn_rig.running(tools(Ledger()), model.driver) as turns:
        key = await turns.start()
        await turns.waiting(key, 2)
        await turns.signoff.decide(yes(key, "c1.2"))
        await turns.until(key, lambda seen: sum(message.role == "assistant" for message in seen.messages) == 3)
        result = await turns.result_after(yes(key, "c1.1"))
        await turns.replays(key)
    assert (result.state, result.text, result.completions) == ("complete", "2 of 2 decided", 4)


async def test_repeated_waiting_call_is_not_asked_twice(turn_rig: TurnRig) -> None:
    ledger, model = Ledger(), Model(calls(PAY), calls(PAY), respond("waiting"), respond("paid"))
    async with turn_rig.running(tools(ledger), model.driver) as turns:
        key = await turns.start()
        await turns.until(key, lambda seen: sum(message.role == "assistant" for message in seen.messages) == 3)
        view = await turns.signoff.view(key)
        assert [call.approval is not None for call in view.calls] == [True, False]
        code = show_code((await turns.question(key)).code)
        assert [str(part.value.inline) for part in (await turns.results(key))[:2]] == [
            f"waiting for approval, {code}"
        ] * 2
        result = await turns.result_after(yes(key))
    assert [(call.code, call.approval_id) for call in result.calls] == [
        ("ok", ApprovalKey(key, "c1.1").id),
        ("waiting", ApprovalKey(key, "c1.1").id),
    ]
    assert len(ledger.rows) == 1


async def test_denial_during_a_repeated_proposal_reaches_the_model_once(turn_rig: TurnRig) -> None:
    ledger, model = Ledger(), Model(calls(PAY), calls(PAY), respond("no"), held=2)
    async with turn_rig.running(tools(ledger), model.driver) as turns:
        key = await turns.start()
        await model.is_held.wait()
        await turns.signoff.decide(no(key))
        await turns.until(key, lambda seen: seen.calls[0].outcome is not None)
        model.goes_on.set()
        result = await turns.signoff.result(key)
        parts = await turns.results(key)
    assert [call.code for call in result.calls] in (["denied", "denied"], ["denied", "waiting"])
    assert [part.type for part in parts if part.late] == ["ToolDenied"]
    assert ledger.rows == []


async def test_call_decided_with_its_siblings_has_one_result(turn_rig: TurnRig) -> None:
    ledger, runs, ends = Ledger(), asyncio.Event(), asyncio.Event()

    async def slow(args: dict[str, Any], ctx: Any) -> str:
        runs.set()
        await ends.wait()
        return "looked"

    look = pay_tool(ledger, False, name="look", effect="", read_only=True, handler=slow)
    model = Model(calls(PAY, LOOK), respond("both"))
    async with turn_rig.running([pay_tool(ledger, ON), look], model.driver) as turns:
        key = await turns.start()
        await runs.wait()
        await turns.signoff.decide(yes(key))
        await turns.until(key, lambda seen: seen.calls[0].outcome is not None)
        ends.set()
        result = await turns.signoff.result(key)
        parts = await turns.results(key)
        await turns.replays(key)
    assert codes(parts) == [("c1.1", "ToolResult", False), ("c1.2", "ToolResult", False)]
    assert (result.text, result.completions) == ("both", 2)


Act = Callable[[RunningTurns, TurnKey, Model], Awaitable[None]]


async def _cancel(turns: RunningTurns, key: TurnKey, model: Model) -> None:
    await turns.client.get_workflow_handle(key.workflow_id).cancel()


async def _cancel_and_decide(turns: RunningTurns, key: TurnKey, model: Model) -> None:
    await asyncio.gather(_cancel(turns, key, model), turns.signoff.decide(yes(key)), return_exceptions=True)


@pytest.mark.parametrize("act", [_cancel, _cancel_and_decide])
@pytest.mark.parametrize("held", [0, 2])
async def test_cancellation_ends_waiting_requests(turn_rig: TurnRig, act: Act, held: int) -> None:
    ledger, model = Ledger(), Model(calls(PAY), respond("asked"), held=held)
    async with turn_rig.running(tools(ledger), model.driver) as turns:
        key = await turns.start()
        if held:
            await model.is_held.wait()
        else:
            await turns.until(key, lambda seen: sum(message.role == "assistant" for message in seen.messages) == 2)
        await act(turns, key, model)
        result = await turns.signoff.result(key)
        parts = await turns.results(key)
        view = await turns.signoff.view(key)
        await turns.replays(key)
        model.goes_on.set()
    (outcome,) = result.calls
    assert result.state == "cancelled"
    assert outcome.code in (("denied",) if act is _cancel else ("denied", "skipped", "ok"))
    assert len(ledger.rows) == (outcome.code == "ok")
    assert [part.late for part in parts if part.call == "c1.1"] == [False, True]
    assert some(view.calls[0].approval).state != "pending"


async def test_turn_at_its_completion_limit_withdraws_waiting_requests(turn_rig: TurnRig) -> None:
    script = [calls(PAY), *(calls(("look", {"amount": number})) for number in range(19))]
    model = Model(*script)
    async with turn_rig.running(tools(Ledger()), model.driver) as turns:
        result = await turns.signoff.result(await turns.start())
    assert (result.state, result.completions) == ("error", 20)
    assert some(result.error).code == "completion_limit"
    first = result.calls[0]
    assert first.denied is not None
    assert (first.code, first.denied.source, first.denied.reason) == ("denied", "cancelled", "The turn has ended.")


async def test_same_call_is_asked_again_after_its_outcome_was_read(turn_rig: TurnRig) -> None:
    model = Model(calls(PAY), respond("asked"), calls(PAY), respond("asked again"), respond("paid"))
    async with turn_rig.running(tools(Ledger()), model.driver) as turns:
        key = await turns.start_waiting()
        await turns.signoff.withdraw(withdrawn(key))
        await turns.until(key, lambda seen: any(call.call == "c3.1" and call.state == "waiting" for call in seen.calls))
        result = await turns.result_after(yes(key, "c3.1"))
    assert [(call.call, call.code) for call in result.calls] == [("c1.1", "denied"), ("c3.1", "ok")]


async def test_edit_is_noted_with_the_late_outcome(turn_rig: TurnRig, ledger: Ledger) -> None:
    policy = ApprovalPolicy(while_waiting="continue", edit="propose", quorum=1)
    less = ("pay", {"amount": 5, "to": "Ana"})
    model = Model(calls(PAY), calls(less, PAY), respond("asked"), respond("done"), held=2)
    catalog = catalog_of([pay_tool(ledger, policy)], people=[a_person(each) for each in ("ana", "bo")])
    async with turn_rig.running(catalog, model.driver) as turns:
        key = await turns.start()
        await model.is_held.wait()
        edit = await turns.signoff.decide(yes(key, subject="ana", edited_args={"amount": 5, "to": "Ana"}))
        assert edit.status == "counted", edit
        model.goes_on.set()
        view = await turns.until(key, lambda seen: sum(each.role == "assistant" for each in seen.messages) == 3)
        pending = [call.call for call in view.calls if call.approval and call.approval.state == "pending"]
        assert pending == ["c1.1"]
        receipt = await turns.signoff.decide(yes(key, subject="bo", revision=2))
        assert receipt.status == "accepted", receipt
        result = await turns.signoff.result(key)
        parts = await turns.results(key)
        await turns.replays(key)
    ended = [(call.call, call.code) for call in result.calls]
    assert ended == [("c1.1", "ok"), ("c2.1", "waiting"), ("c2.2", "waiting")]
    first = next(part for part in parts if part.call == "c1.1" and part.late)
    assert "amount" in first.note
    assert "20" in first.note
    assert [row[1] for row in ledger.rows] == [{"amount": 5, "to": "Ana"}]


async def test_expired_request_reaches_the_model_as_a_denial(turn_rig: TurnRig) -> None:
    model = Model(calls(PAY), respond("asked"), respond("nobody answered"))
    async with turn_rig.running(tools(Ledger()), model.driver) as turns:
        key = await turns.start()
        await turns.until(key, lambda seen: sum(each.role == "assistant" for each in seen.messages) == 2)
        await turns.forward(key, hours=24, minutes=1)
        result = await turns.signoff.result(key)
        last = (await turns.results(key))[-1]
    assert (result.text, last.late) == ("nobody answered", True)
    assert isinstance(last.value.inline, dict)
    assert (last.value.inline["type"], last.value.inline["source"]) == ("ToolDenied", "timeout")


async def test_failure_does_not_stop_a_waiting_call_of_an_earlier_completion(turn_rig: TurnRig, ledger: Ledger) -> None:
    look = pay_tool(ledger, False, name="look", effect="", handler=ledger.handler("look", ToolFailure("no")))
    actor = Actor(name="desk", model="scripted", on_failure="abort_siblings")
    model = Model(calls(PAY), calls(LOOK), respond("asked"), respond("paid"))
    catalog = catalog_of([pay_tool(ledger, ON), look], actors=[actor])
    async with turn_rig.running(catalog, model.driver) as turns:
        key = await turns.start()
        await turns.until(key, lambda seen: sum(each.role == "assistant" for each in seen.messages) == 3)
        result = await turns.result_after(yes(key))
    assert [(call.call, call.code) for call in result.calls] == [("c1.1", "ok"), ("c2.1", "execution_failed")]
