"""Two gateways for the whole session, one of them with external agents."""

from gateway_fixtures import agent, gateway, rig

__all__ = ["agent", "gateway", "rig"]
