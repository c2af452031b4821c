"""A turn of Pydantic AI. Agent and workflow share a file, as documented. The sandbox loads it for each turn."""

from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, FunctionToolset, RunContext, ToolDefinition
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.durable_exec.temporal import PydanticAIWorkflow, TemporalDurability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from temporalio import workflow

_AUTOMATIC_BELOW = 50
_HUMAN = "human"
"""The same word as the other sides', whose module would have to be loaded here."""

payments: FunctionToolset[None] = FunctionToolset(id="payments")


@payments.tool_plain
async def pay(amount: float, to: str) -> str:
    """Pay somebody."""
    return "paid"


async def _complete(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    parts = [part for message in messages for part in message.parts]
    if any(isinstance(part, ToolReturnPart) for part in parts):
        return ModelResponse(parts=[TextPart("done")])
    human = any(isinstance(part, UserPromptPart) and part.content == _HUMAN for part in parts)
    return ModelResponse(parts=[ToolCallPart("pay", {"amount": 420 if human else 20, "to": "Ana"})])


def _must_ask(ctx: RunContext[None], tool: ToolDefinition, args: dict[str, Any]) -> bool:
    return bool(args["amount"] >= _AUTOMATIC_BELOW)


async def _ask(ctx: RunContext[None], requests: DeferredToolRequests) -> DeferredToolResults:
    turn = workflow.instance()
    await workflow.wait_condition(lambda: bool(turn.verdict))
    return requests.build_results(approve_all=True)


desk = Agent(
    FunctionModel(_complete),
    name="desk",
    toolsets=[payments.approval_required(_must_ask)],
    capabilities=[HandleDeferredToolCalls(handler=_ask), TemporalDurability()],
)


@workflow.defn
class PydanticTurn(PydanticAIWorkflow):
    """The smallest workflow for the work."""

    __pydantic_ai_agents__ = (desk,)

    def __init__(self) -> None:
        self.verdict = ""

    @workflow.signal
    def decide(self, verdict: str) -> None:
        self.verdict = verdict

    @workflow.run
    async def run(self, prompt: str) -> str:
        return (await desk.run(prompt)).output
