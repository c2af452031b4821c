import asyncio
import uuid
from typing import Any

import pytest
from client_rig import HUGE, LARGE, SMALL, ClientRig
from external_agents import pydantic_ai_agent
from polling import until
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from signoff_client import Call, Gate
from signoff_client.pydantic_ai import approvals


class _Noting(Gate):
    def __init__(self, gate: Gate, keys: list[str]) -> None:
        self.__dict__.update(gate.__dict__)
        self._keys = keys

    def call(self, tool: str, args: Any, **fields: Any) -> Call:
        self._keys.append(fields["key"])
        return super().call(tool, args, **fields)


class Run:
    def __init__(self, gate: Gate, *calls: tuple[str, dict[str, Any]], ids: str = "") -> None:
        self.ids = ids or uuid.uuid4().hex
        self.asked: list[str] = []
        self.ran: list[tuple[str, float]] = []
        self._calls = calls
        output: Any = [str, DeferredToolRequests]
        model = FunctionModel(self._answer)
        self.agent = Agent(model, output_type=output, capabilities=[approvals(_Noting(gate, self.asked))])
        self.agent.tool_plain(self.refund, requires_approval=True)
        self.agent.tool_plain(self.pay, requires_approval=True)
        self.agent.tool_plain(self.harmless)

    def refund(self, order: str, euro: float) -> str:
        """Pays money back."""
        self.ran.append((order, euro))
        if order == "closed":
            raise ValueError("the bank is closed")
        return f"refunded {euro:.0f}"

    def pay(self, amount: float) -> str:
        """Pays; Signoff runs it."""
        raise AssertionError("run here")

    def harmless(self) -> str:
        """Needs nobody."""
        return "done"

    async def play(self) -> Any:
        return (await self.agent.run("refund it")).output

    async def same(self, rig: ClientRig, args: dict[str, Any]) -> Call:
        await until(lambda: bool(self.asked))
        return rig.call(args, key=self.asked[0], wait=0)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = [part for message in messages for part in message.parts]
        answers = [part for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
        if answers:
            return ModelResponse(parts=[TextPart("; ".join(str(part.content) for part in answers))])
        numbered = enumerate(self._calls)
        made = [ToolCallPart(name, args, tool_call_id=f"{self.ids}-{at}") for at, (name, args) in numbered]
        return ModelResponse(parts=list(made))


async def waiting(rig: ClientRig, *calls: tuple[str, dict[str, Any]]) -> tuple[Run, asyncio.Task[Any], Call]:
    run = Run(rig.gate(), *calls)
    task = asyncio.create_task(run.play())
    call = await run.same(rig, LARGE)
    await call.settle()
    return run, task, call


async def test_permitted_call_is_approved_run_and_reported(rig: ClientRig) -> None:
    run = Run(rig.gate(), ("refund", SMALL), ("harmless", {}))
    assert await run.play() == "refunded 20; done"
    call = await run.same(rig, SMALL)
    await call.settle()
    assert (run.ran, call.text) == ([("A7", 20)], "refunded 20")


async def test_edited_call_runs_with_the_new_arguments(rig: ClientRig) -> None:
    run, task, call = await waiting(rig, ("refund", LARGE))
    await rig.decide(call, edited_args={"order": "A7", "euro": 150})
    assert (await task).startswith("refunded 150\n(Approver edited the arguments")
    assert (run.ran, (await rig.show(call.id))["result"]) == ([("A7", 150)], "refunded 150")


async def test_remark_of_an_approver_reaches_pydantic_ais_model(rig: ClientRig) -> None:
    _, task, call = await waiting(rig, ("refund", LARGE))
    await rig.decide(call, reason="thank you for checking")
    answer = await task
    assert answer.startswith(f"refunded {LARGE['euro']}\n(")
    assert "thank you for checking" in answer


async def test_denial_is_returned_to_pydantic_ais_model(rig: ClientRig) -> None:
    run, task, call = await waiting(rig, ("refund", LARGE), ("refund", HUGE), ("refund", {"order": "B2", "euro": 10}))
    await rig.decide(call, verdict="denied", reason="not twice")
    answers = (await task).split("; ")
    assert answers[0].startswith("Not run: it was denied by approver: not twice")
    assert answers[1].startswith("Not run: a rule denies it")
    assert (answers[2], run.ran) == ("refunded 10", [("B2", 10)])


async def test_withdrawal_is_returned_to_pydantic_ais_model(rig: ClientRig) -> None:
    run, task, call = await waiting(rig, ("refund", LARGE))
    assert await call.withdraw()
    assert (await task).startswith("Not run: it was withdrawn")
    assert run.ran == []


async def test_timeout_is_returned_to_pydantic_ais_model(rig: ClientRig) -> None:
    run = Run(rig.gate(), ("brief", LARGE))
    run.agent.tool_plain(run.refund, name="brief", requires_approval=True)
    assert (await run.play()).startswith("Not run: nobody answered in time")
    assert run.ran == []


async def test_waiting_call_stays_deferred_and_is_found_again(rig: ClientRig) -> None:
    first = Run(rig.gate(wait=0), ("refund", LARGE))
    played = await first.agent.run("refund it")
    output = played.output
    assert isinstance(output, DeferredToolRequests)
    assert [each.tool_name for each in output.approvals] == ["refund"]
    call = await first.same(rig, LARGE)
    await call.settle()
    await rig.decide(call)
    again = Run(rig.gate(), ("refund", LARGE))
    history = ModelMessagesTypeAdapter.validate_json(played.all_messages_json())
    assert (await again.agent.run(message_history=history)).output == "refunded 200"
    assert (first.ran, again.ran) == ([], [("A7", 200)])


async def test_used_call_is_not_run_again_by_pydantic_ai(rig: ClientRig) -> None:
    first = Run(rig.gate(), ("refund", SMALL))
    messages = (await first.agent.run("refund it")).all_messages()
    again = Run(rig.gate(), ("refund", SMALL))
    assert (await again.agent.run(message_history=messages[:2])).output == "refunded 20"
    assert again.ran == []


async def test_repeated_id_in_another_pydantic_ai_conversation_is_asked_and_run(rig: ClientRig) -> None:
    for _ in range(2):
        run = Run(rig.gate(), ("refund", LARGE), ids="functions.refund")
        task = asyncio.create_task(run.play())
        call = await run.same(rig, LARGE)
        await call.settle()
        await rig.decide(call)
        assert (await task, run.ran) == ("refunded 200", [("A7", 200)])


async def test_call_run_by_signoff_is_not_run_by_the_agent(rig: ClientRig) -> None:
    assert await Run(rig.gate(), ("pay", {"amount": 20})).play() == "paid"


async def test_error_of_the_tool_is_reported(rig: ClientRig) -> None:
    run = Run(rig.gate(), ("refund", {"order": "closed", "euro": 20}))
    with pytest.raises(ValueError, match="closed"):
        await run.play()
    call = await run.same(rig, {"order": "closed", "euro": 20})
    await call.settle()
    assert call.text == "It failed: ValueError: the bank is closed"


async def test_unreachable_gateway_means_no_run_in_pydantic_ai(rig: ClientRig) -> None:
    async with rig.serve() as url:
        waiting = Run(rig.gate(url), ("refund", LARGE))
        task = asyncio.create_task(waiting.play())
        call = await waiting.same(rig, LARGE)
        await call.settle()
        await until(lambda: bool(call.id))
    assert (await task).startswith("Not run: Signoff gave no answer")
    gone = Run(rig.gate(url), ("refund", SMALL))
    assert (await gone.play()).startswith("Not run: Signoff gave no answer")
    assert (waiting.ran, gone.ran) == ([], [])


async def test_documented_agent_runs_only_permitted_calls(rig: ClientRig) -> None:
    for args, text in ((SMALL, "refunded 20 EUR for A7"), (HUGE, "Not run: a rule denies it")):
        model = FunctionModel(Run(rig.gate(), ("refund", args))._answer)
        assert (await pydantic_ai_agent.run(model, rig.gate(), "refund it", text)).startswith(text)
