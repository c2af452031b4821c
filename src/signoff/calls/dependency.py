"""What the functions of plugins' routes take as parameters."""

from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from signoff.calls.agent_calls import AgentCalls, ExternalCalls


# Not plain functions: FastAPI would call them in a thread.
async def _external_calls(request: Request) -> ExternalCalls:
    port: ExternalCalls = request.app.state.external_calls
    return port


External = Annotated[ExternalCalls, Depends(_external_calls)]
"""What a route for whoever asks may know of the installation."""


async def _agent_calls(request: Request, port: External) -> AgentCalls:
    return port.of(request)


Calls = Annotated[AgentCalls, Depends(_agent_calls)]
"""The calls of the agent that sent the request. A route for whoever asks has none."""
