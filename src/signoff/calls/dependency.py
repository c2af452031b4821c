"""Parameters for the functions of plugins' routes."""

from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from signoff.calls.agent_calls import AgentCalls, ExternalCalls
from signoff.calls.peer_turns import PeerTurns


# Async, because FastAPI would run plain functions in a thread.
async def _external_calls(request: Request) -> ExternalCalls:
    port: ExternalCalls = request.app.state.external_calls
    return port


External = Annotated[ExternalCalls, Depends(_external_calls)]
"""The installation's data for a route without sign-in."""


async def _agent_calls(request: Request, port: External) -> AgentCalls:
    return port.of(request)


Calls = Annotated[AgentCalls, Depends(_agent_calls)]
"""The calls of the agent that sent the request. A route without sign-in has none."""


async def _peer_turns(request: Request, port: External) -> PeerTurns:
    return port.turns_of(request)


Turns = Annotated[PeerTurns, Depends(_peer_turns)]
"""The turns of the other agent that sent the request, at a route for peers."""
