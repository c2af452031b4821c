import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aap_rig import Adapter
from agentapprovalprotocol import AsyncClient, AsyncGate
from agentapprovalprotocol.pydantic_ai import ApprovalCapability
from client_rig import SMALL, ClientRig
from framework_program import Case, FrameworkProgram, framework_program
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
Args = dict[str, Any]


class PydanticAiProgram:
    async def play(self, rig: ClientRig, case: Case, *, url: str = "", shim: float = 30.0) -> dict[str, Any]:
        turns, ran = case.spoken(), []

        def speak(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            if turns:
                made = [ToolCallPart(each["name"], each["args"], each["id"]) for each in turns.pop(0)]
                return ModelResponse(parts=made)
            told = [str(part.content) for each in messages for part in each.parts if part.part_kind == "tool-return"]
            return ModelResponse(parts=[TextPart(" | ".join(told))])

        def refund(order: str, euro: float) -> str:
            """Pays money back for an order."""
            ran.append([order, euro])
            return f"refunded {euro:.0f} EUR for {order}"

        client = AsyncClient(f"{url or rig.url}/aap/coder", rig.token, retry_budget=shim)
        approvals = ApprovalCapability(gate=AsyncGate(client))
        agent = Agent(FunctionModel(speak), tools=[refund], capabilities=[approvals])
        text = (await agent.run("refund it")).output
        await client.aclose()
        return {"text": text, "ran": ran}


@pytest.fixture(scope="module", params=["pydantic_ai", "openai", "langchain"])
async def program(request: pytest.FixtureRequest) -> AsyncIterator[FrameworkProgram | PydanticAiProgram]:
    if request.param == "pydantic_ai":
        yield PydanticAiProgram()
        return
    async with framework_program(request.param) as started:
        yield started


async def test_shim_runs_approved_calls(rig: ClientRig, program: FrameworkProgram | PydanticAiProgram) -> None:
    yes, no, huge, changed = ({"order": uuid.uuid4().hex, "euro": euro} for euro in (200, 200, 2_000, 200))
    written = changed | {"euro": 150}
    turns = ((("refund", yes), ("refund", no), ("refund", huge)), (("refund", changed),), (("refund", written),))
    playing = asyncio.create_task(program.play(rig, Case(turns), shim=600.0))
    people = Adapter(rig.agent, rig.agent.http, rig.token, "/aap/coder")
    run = await people.decide(yes)
    await people.decide(no, verdict="denied", reason="not this month")
    edited = await people.decide(changed, edited_args=written)
    played = await playing
    assert played["ran"] == [[yes["order"], 200], [changed["order"], 150]]
    for words in ("not this month", "`deny_if` is true", str(changed["order"])):
        assert words in played["text"]
    for call in (run, edited):
        shown = await rig.show(call)
        assert (shown["state"], shown["code"]) == ("ended", "ok")


async def test_unreachable_gateway_means_no_run_with_a_shim(
    rig: ClientRig, program: FrameworkProgram | PydanticAiProgram
) -> None:
    async with rig.serve() as url:
        pass
    played = await program.play(rig, Case(((("refund", SMALL),),)), url=url, shim=0.0)
    assert (played["text"] != "", played["ran"]) == (True, [])
