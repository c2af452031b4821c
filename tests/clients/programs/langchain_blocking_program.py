import asyncio
from typing import Any

from external_agents import langchain_agent
from langchain.agents import create_agent
from langchain_model import make_model
from script import serve

from signoff_client import Gate
from signoff_client.langchain import Approvals


async def run(model: Any, gate: Gate, text: str, conversation: str) -> str:
    agent = create_agent(model, [langchain_agent.refund], middleware=[Approvals(gate, {"refund"})])
    config: Any = {"configurable": {"thread_id": conversation}}
    played = await asyncio.to_thread(agent.invoke, {"messages": [("user", text)]}, config)
    return str(played["messages"][-1].text)


langchain_agent.run = run  # type: ignore[assignment]
serve("langchain_agent", make_model)
