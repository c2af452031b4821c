import json
from typing import Any

from agents import Agent, Runner
from temporal_script import TIME, serve
from temporalio import activity, workflow
from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
from temporalio.openai_agents.testing import ResponseBuilders, TestModel, TestModelProvider
from temporalio.openai_agents.workflow import activity_as_tool


@activity.defn
async def refund(order: str, euro: float) -> str:
    """Pays money back for an order."""
    return f"refunded {euro:.0f} EUR for {order}"


@workflow.defn(name="Agent")
class RefundAgent:
    @workflow.run
    async def run(self, order: str) -> str:
        agent = Agent("clerk", tools=[activity_as_tool(refund, start_to_close_timeout=TIME)])
        return str((await Runner.run(agent, order)).final_output)


class Model(TestModel):
    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        items = [] if isinstance(input, str) else [dict(each) for each in input]
        answers = [str(each["output"]) for each in items if each.get("type") == "function_call_output"]
        if answers:
            return ResponseBuilders.output_message(answers[-1])
        order = input if isinstance(input, str) else str(items[0]["content"])
        return ResponseBuilders.tool_call(json.dumps({"order": order, "euro": 200}), "refund")


def main() -> None:
    models = TestModelProvider(Model(lambda: ResponseBuilders.output_message("")))
    plugin = OpenAIAgentsPlugin(ModelActivityParameters(start_to_close_timeout=TIME), models)
    serve(RefundAgent, [plugin], [refund], [refund])
