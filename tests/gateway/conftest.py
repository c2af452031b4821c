from gateway_fixtures import agent, gateway, rig

__all__ = ["agent", "gateway", "rig"]
