from langchain.agents import create_agent

from signoff_client import Gate
from signoff_client.langchain import Approvals


def refund(order: str, euro: float) -> str:
    """Pays money back for an order."""
    return f"refunded {euro:.0f} EUR for {order}"


async def run(model, gate: Gate, text: str, conversation: str) -> str:
    agent = create_agent(model, [refund], middleware=[Approvals(gate, {"refund"})])
    config = {"configurable": {"thread_id": conversation}}
    return (await agent.ainvoke({"messages": [("user", text)]}, config))["messages"][-1].text
