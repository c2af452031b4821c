"""What a test of a tool needs without a server: the context of a call."""

from typing import Any

from signoff.contracts.person import Principal
from signoff.registry.tool_context import ToolContext


def tool_context(**fields: Any) -> ToolContext:
    """Makes the context of an imagined call of the actor `clerk` for `guest`; `fields` are those of `ToolContext`."""
    given: dict[str, Any] = {
        "actor_name": "clerk",
        "session_id": "s",
        "turn_id": "t",
        "call_id": "c1.1",
        "tenant_id": "main",
        "user_id": "guest",
        "user": Principal(user="guest", name="Guest"),
        "idempotency_key": "k",
    }
    return ToolContext(**given | fields)
