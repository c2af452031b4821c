"""What a route of a plugin needs: the external calls of the agent that sent a request."""

from typing import TYPE_CHECKING

from signoff.formats.lazy_names import lazy_names

if TYPE_CHECKING:
    from signoff.calls.agent_calls import MOVING as MOVING
    from signoff.calls.agent_calls import SETTLED as SETTLED
    from signoff.calls.agent_calls import AgentCalls as AgentCalls
    from signoff.calls.agent_calls import CallHandle as CallHandle
    from signoff.calls.call_naming import naming as naming
    from signoff.calls.dependency import Calls as Calls
    from signoff.contracts.requests import CallBody as CallBody
    from signoff.contracts.requests import OutcomeBody as OutcomeBody

_MODULES = {
    "MOVING": "signoff.calls.agent_calls",
    "SETTLED": "signoff.calls.agent_calls",
    "AgentCalls": "signoff.calls.agent_calls",
    "CallHandle": "signoff.calls.agent_calls",
    "CallBody": "signoff.contracts.requests",
    "Calls": "signoff.calls.dependency",
    "OutcomeBody": "signoff.contracts.requests",
    "naming": "signoff.calls.call_naming",
}
__all__ = [*_MODULES]
__getattr__ = lazy_names(__name__, _MODULES)
