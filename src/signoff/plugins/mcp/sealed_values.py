"""Seals what clients of MCP carry for the gateway: ids of sessions, and states of requests between two rounds.

Every gateway over one store reads what another one sealed; nothing of a client is kept in between.
"""

import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from signoff.calls import Sealer
from signoff.contracts.canonical_json import sha256_hex

SEAL: Final = "mcp"
"""The name of the key by which both are sealed."""
_SESSION: Final = "mcp session"
_STATE: Final = "mcp request state"


class ClientSession(NamedTuple):
    """What the id of a client's session says of the client."""

    id: str = ""
    """Empty of a client that has no session."""
    opens_urls: bool = False
    """Whether it said that it shows its user a page that it is asked to open."""


def new_session_id(sealer: Sealer, tenant: str, agent: str, *, opens_urls: bool = False) -> str:
    """Returns the id of a new session of an agent's."""
    return sealer.seal(_SESSION, [tenant, agent, secrets.token_hex(8), opens_urls])


def open_session_id(sealer: Sealer, tenant: str, agent: str, given: str) -> ClientSession | None:
    """Returns the session of an id that this agent's client was given; None for any other."""
    values = sealer.unseal(_SESSION, given)
    return ClientSession(given, values[3]) if values is not None and values[:2] == [tenant, agent] else None


@dataclass(frozen=True)
class RequestBinding:
    """To what the state of a request is bound: who asks, in whose name, and for what."""

    tenant: str
    agent: str
    user: str
    tool: str
    args: dict[str, Any]

    def _values(self) -> list[Any]:
        return [self.tenant, self.agent, self.user, sha256_hex(["tools/call", self.tool, self.args])]

    def seal_state(self, sealer: Sealer, call: str, rounds: int, expires: datetime) -> str:
        """Returns the state of a request after so many rounds: which call it waits for."""
        return sealer.seal(_STATE, [*self._values(), call, rounds, int(expires.timestamp())])

    def open_state(self, sealer: Sealer, given: str, now: datetime) -> tuple[str, int] | None:
        """Returns the call that a state names and its rounds; None for one of another request, and for an old one."""
        values = sealer.unseal(_STATE, given)
        if values is None or values[:4] != self._values() or now.timestamp() >= values[6]:
            return None
        return values[4], values[5]
