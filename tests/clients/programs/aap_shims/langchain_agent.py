from typing import Any

from agentapprovalprotocol import AsyncGate
from agentapprovalprotocol.langgraph import ApprovalMiddleware
from langchain.agents import create_agent

refund: Any = None
"""The tool, set by the script of a case."""


async def run(model: Any, gate: AsyncGate, text: str) -> str:
    agent = create_agent(model, [refund], middleware=[ApprovalMiddleware(async_gate=gate)])
    return str((await agent.ainvoke({"messages": [("user", text)]}))["messages"][-1].text)
