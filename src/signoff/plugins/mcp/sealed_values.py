"""Seals values that MCP clients carry: session ids, and states of requests between two rounds.

Every gateway of one store opens them. Nothing about a client is stored in between.
"""

import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from signoff.calls import Sealer
from signoff.contracts.canonical_json import sha256_hex

SEAL: Final = "mcp"
"""The name of the sealing key."""
_SESSION: Final = "mcp session"
_STATE: Final = "mcp request state"


class ClientSession(NamedTuple):
    """The facts in a client's session id."""

    id: str = ""
    """Empty for a client without a session."""
    opens_urls: bool = False
    """Whether the client can show its user a page."""


def new_session_id(sealer: Sealer, tenant: str, agent: str, *, opens_urls: bool = False) -> str:
    return sealer.seal(_SESSION, [tenant, agent, secrets.token_hex(8), opens_urls])


def open_session_id(sealer: Sealer, tenant: str, agent: str, given: str) -> ClientSession | None:
    """Return `None` for an id that this agent's client did not receive."""
    values = sealer.unseal(_SESSION, given)
    return ClientSession(given, values[3]) if values is not None and values[:2] == [tenant, agent] else None


@dataclass(frozen=True)
class RequestBinding:
    """The binding of a request's state: agent, person and call."""

    tenant: str
    agent: str
    user: str
    tool: str
    args: dict[str, Any]

    def _values(self) -> list[Any]:
        return [self.tenant, self.agent, self.user, sha256_hex(["tools/call", self.tool, self.args])]

    def seal_state(self, sealer: Sealer, call: str, rounds: int, expires: datetime) -> str:
        return sealer.seal(_STATE, [*self._values(), call, rounds, int(expires.timestamp())])

    def open_state(self, sealer: Sealer, given: str, now: datetime) -> tuple[str, int] | None:
        """Return the call and the rounds. `None` for another request's or an expired state."""
        values = sealer.unseal(_STATE, given)
        if values is None or values[:4] != self._values() or now.timestamp() >= values[6]:
            return None
        return values[4], values[5]
