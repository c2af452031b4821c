from typing import Any

from agentapprovalprotocol import AsyncGate
from agentapprovalprotocol.openai_agents import Approvals
from agents import Agent, Runner, function_tool

refund: Any = None
"""The tool, set by the script of a case."""


async def run(model: Any, gate: AsyncGate, text: str) -> str:
    agent = Agent("clerk", model=model, tools=[function_tool(refund)])
    Approvals(gate=gate).protect(agent)
    return str((await Runner.run(agent, text)).final_output)
