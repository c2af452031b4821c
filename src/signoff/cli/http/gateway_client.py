"""Makes the client by which the commands of people speak to a gateway."""

from signoff.client.client import Client
from signoff.contracts.names import TERMINAL_AGENT


def gateway_client(url: str | None) -> Client:
    """Returns a client that says that it is a terminal, by which answers are recorded; raises as `Client`."""
    return Client(url, agent=TERMINAL_AGENT)
