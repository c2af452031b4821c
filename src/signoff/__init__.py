"""Signoff: durable human approval of agents' actions, on Temporal."""

__version__ = "0.1.0"
