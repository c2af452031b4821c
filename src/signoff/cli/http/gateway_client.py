"""The gateway client of commands for people."""

from signoff.client.client import Client
from signoff.contracts.names import TERMINAL_AGENT


def gateway_client(url: str | None) -> Client:
    """Identify the client as a terminal, which answers record. Raises like `Client`."""
    return Client(url, agent=TERMINAL_AGENT)
