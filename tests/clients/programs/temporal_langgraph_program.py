from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from temporal_script import TIME, serve
from temporalio import workflow
from temporalio.langgraph import LangGraphPlugin, graph

from signoff_client.temporal import GatedActivity


class Order(TypedDict, total=False):
    order: str
    euro: float
    text: str


async def refund(state: Order) -> dict[str, Any]:
    return {"text": f"refunded {state['euro']:.0f} EUR for {state['order']}"}


@workflow.defn(name="Agent")
class RefundAgent:
    @workflow.run
    async def run(self, order: str) -> str:
        ended = await graph("clerk").compile().ainvoke({"order": order, "euro": 200.0})
        return str(ended["text"])


def main() -> None:
    clerk: Any = StateGraph(Order)
    clerk.add_node("refund", refund, metadata={"execute_in": "activity", "start_to_close_timeout": TIME})
    clerk.add_edge(START, "refund")
    clerk.add_edge("refund", END)
    node = GatedActivity("clerk.refund", tool="refund", args_at="args.0")
    serve(RefundAgent, [LangGraphPlugin(graphs={"clerk": clerk})], gated=[node])
