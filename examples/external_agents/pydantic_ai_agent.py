from pydantic_ai import Agent

from signoff_client import Gate
from signoff_client.pydantic_ai import approvals


def refund(order: str, euro: float) -> str:
    return f"refunded {euro:.0f} EUR for {order}"


async def run(model, gate: Gate, text: str, conversation: str) -> str:
    agent = Agent(model, capabilities=[approvals(gate)])
    agent.tool_plain(refund, requires_approval=True)
    return (await agent.run(text, conversation_id=conversation)).output
