from typing import Any

from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, PydanticAIWorkflow, TemporalDurability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from temporal_script import TIME, serve
from temporalio import workflow

from signoff_client.temporal import GatedActivity


async def refund(order: str, euro: float) -> str:
    """Pays money back for an order."""
    return f"refunded {euro:.0f} EUR for {order}"


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    parts: list[Any] = [part for message in messages for part in message.parts]
    answers = [str(part.content) for part in parts if part.part_kind == "tool-return"]
    if answers:
        return ModelResponse([TextPart(answers[-1])])
    order = next(part.content for part in parts if part.part_kind == "user-prompt")
    return ModelResponse([ToolCallPart("refund", {"order": order, "euro": 200})])


AGENT = Agent(
    FunctionModel(answer),
    name="clerk",
    toolsets=[FunctionToolset([refund], id="bank")],
    capabilities=[TemporalDurability(activity_config={"start_to_close_timeout": TIME})],
)


@workflow.defn(name="Agent")
class RefundAgent(PydanticAIWorkflow):
    __pydantic_ai_agents__ = (AGENT,)

    @workflow.run
    async def run(self, order: str) -> str:
        return str((await AGENT.run(order)).output)


def main() -> None:
    tools = GatedActivity(
        "agent__clerk__toolset__bank__call_tool", tool_at="name", args_at="tool_args", tools=("refund",)
    )
    serve(RefundAgent, [PydanticAIPlugin()], gated=[tools])
