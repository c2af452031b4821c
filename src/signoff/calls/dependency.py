"""What the functions of plugins' routes take as parameters."""

from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from signoff.calls.agent_calls import AgentCalls, ExternalCalls


# Not a plain function: FastAPI would call it in a thread.
async def _agent_calls(request: Request) -> AgentCalls:
    port: ExternalCalls = request.app.state.external_calls
    return port.of(request)


async def _public_url(request: Request) -> str:
    port: ExternalCalls = request.app.state.external_calls
    return port.public_url


Calls = Annotated[AgentCalls, Depends(_agent_calls)]
"""The calls of the agent that sent the request. A route for whoever asks has none."""
PublicUrl = Annotated[str, Depends(_public_url)]
"""The address at which people and programs reach the gateway."""
