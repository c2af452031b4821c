"""What the functions of plugins' routes take as parameters."""

from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from signoff.calls.agent_calls import AgentCalls, ExternalCalls


# Not a plain function: FastAPI would call it in a thread.
async def _agent_calls(request: Request) -> AgentCalls:
    port: ExternalCalls = request.app.state.external_calls
    return port.of(request)


Calls = Annotated[AgentCalls, Depends(_agent_calls)]
"""The calls of the agent that sent the request. A route for whoever asks has none."""
