"""The interface for plugins' routes: the external calls of the agent that sent a request."""

from typing import TYPE_CHECKING

from signoff.formats.lazy_names import lazy_names

if TYPE_CHECKING:
    from signoff.calls.agent_calls import MOVING as MOVING
    from signoff.calls.agent_calls import SETTLED as SETTLED
    from signoff.calls.agent_calls import AgentCalls as AgentCalls
    from signoff.calls.agent_calls import AgentIdentity as AgentIdentity
    from signoff.calls.agent_calls import AskedQuestion as AskedQuestion
    from signoff.calls.agent_calls import CallHandle as CallHandle
    from signoff.calls.agent_calls import CallTerms as CallTerms
    from signoff.calls.agent_calls import CallTimes as CallTimes
    from signoff.calls.agent_calls import CallUse as CallUse
    from signoff.calls.agent_calls import ExternalCalls as ExternalCalls
    from signoff.calls.agent_calls import Judgement as Judgement
    from signoff.calls.agent_calls import Kept as Kept
    from signoff.calls.agent_calls import Sealer as Sealer
    from signoff.calls.agent_calls import ToolListing as ToolListing
    from signoff.calls.call_naming import naming as naming
    from signoff.calls.dependency import Calls as Calls
    from signoff.calls.dependency import External as External
    from signoff.calls.dependency import Turns as Turns
    from signoff.calls.peer_turns import Exposed as Exposed
    from signoff.calls.peer_turns import ExposedActor as ExposedActor
    from signoff.calls.peer_turns import ExposedTool as ExposedTool
    from signoff.calls.peer_turns import PeerTurns as PeerTurns
    from signoff.calls.peer_turns import TurnStart as TurnStart
    from signoff.calls.use_id import make_use_id as make_use_id
    from signoff.contracts.requests import CallBody as CallBody
    from signoff.contracts.requests import OutcomeBody as OutcomeBody

_MODULES = {
    "AgentCalls": "signoff.calls.agent_calls",
    "AgentIdentity": "signoff.calls.agent_calls",
    "AskedQuestion": "signoff.calls.agent_calls",
    "CallBody": "signoff.contracts.requests",
    "CallHandle": "signoff.calls.agent_calls",
    "CallTerms": "signoff.calls.agent_calls",
    "CallTimes": "signoff.calls.agent_calls",
    "CallUse": "signoff.calls.agent_calls",
    "Calls": "signoff.calls.dependency",
    "Exposed": "signoff.calls.peer_turns",
    "ExposedActor": "signoff.calls.peer_turns",
    "ExposedTool": "signoff.calls.peer_turns",
    "External": "signoff.calls.dependency",
    "ExternalCalls": "signoff.calls.agent_calls",
    "Judgement": "signoff.calls.agent_calls",
    "Kept": "signoff.calls.agent_calls",
    "MOVING": "signoff.calls.agent_calls",
    "OutcomeBody": "signoff.contracts.requests",
    "PeerTurns": "signoff.calls.peer_turns",
    "SETTLED": "signoff.calls.agent_calls",
    "Sealer": "signoff.calls.agent_calls",
    "ToolListing": "signoff.calls.agent_calls",
    "TurnStart": "signoff.calls.peer_turns",
    "Turns": "signoff.calls.dependency",
    "make_use_id": "signoff.calls.use_id",
    "naming": "signoff.calls.call_naming",
}
__all__ = [*_MODULES]
__getattr__ = lazy_names(__name__, _MODULES)
