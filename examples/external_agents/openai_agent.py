from agents import Agent, Runner, function_tool

from signoff_client import Gate
from signoff_client.openai_agents import settle


def refund(order: str, euro: float) -> str:
    return f"refunded {euro:.0f} EUR for {order}"


async def run(model, gate: Gate, text: str, conversation: str) -> str:
    agent = Agent("clerk", model=model, tools=[function_tool(refund, needs_approval=True)])
    return (await settle(agent, await Runner.run(agent, text), gate, run=conversation)).final_output
