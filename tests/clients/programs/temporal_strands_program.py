import json
from collections.abc import AsyncIterator
from typing import Any

from strands.models import Model
from temporal_script import TIME, serve
from temporalio import activity, workflow
from temporalio.strands_agents import StrandsPlugin, TemporalAgent
from temporalio.strands_agents.workflow import activity_as_tool


@activity.defn
async def refund(order: str, euro: float) -> str:
    """Pays money back for an order."""
    return f"refunded {euro:.0f} EUR for {order}"


@workflow.defn(name="Agent")
class RefundAgent:
    @workflow.run
    async def run(self, order: str) -> str:
        tools = [activity_as_tool(refund, start_to_close_timeout=TIME)]
        agent = TemporalAgent(model="scripted", start_to_close_timeout=TIME, tools=tools, callback_handler=None)
        return str(await agent.invoke_async(order)).strip()


class Scripted(Model):
    def update_config(self, **model_config: Any) -> None:
        """Do nothing."""

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        parts = [part for message in messages for part in message["content"]]
        answers = [part["toolResult"]["content"][0]["text"] for part in parts if "toolResult" in part]
        yield {"messageStart": {"role": "assistant"}}
        if answers:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": answers[-1]}}}
        else:
            call = json.dumps({"order": parts[0]["text"], "euro": 200})
            yield {"contentBlockStart": {"start": {"toolUse": {"name": "refund", "toolUseId": "call-1"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": call}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if answers else "tool_use"}}


def main() -> None:
    serve(RefundAgent, [StrandsPlugin(models={"scripted": Scripted})], [refund], [refund])
