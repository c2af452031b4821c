"""Makes an agent's client show its user the page for a decision: URL elicitation of MCP, in both eras.

The client only answers whether its user opened the page, which decides nothing. The user decides there, signed in.
"""

import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

Message = dict[str, Any]
"""A message of JSON-RPC."""
SendBeside = Callable[[Message], Awaitable[None]]
"""Sends a client a message in addition to its response."""
SEND_BESIDE: Final = "signoff.mcp.send"
"""The key of that function in a request's scope."""
_METHOD: Final = "elicitation/create"
_INPUT: Final = "page"
"""The name of the page among the client's input requests."""


class DecisionPage(NamedTuple):
    """The page on which the call's person may decide."""

    url: str
    words: str


def opens_urls(capabilities: Any) -> bool:
    elicitation = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    return isinstance(elicitation, dict) and isinstance(elicitation.get("url"), dict)


def input_requests(page: DecisionPage) -> dict[str, Message]:
    """A client of 2026-07-28 answers these in its next round."""
    return {_INPUT: {"method": _METHOD, "params": _params(page)}}


def elicitation(page: DecisionPage, name: str) -> Message:
    """Ask a client of 2025-11-25. Its answer reaches any gateway, and is not awaited."""
    params = {**_params(page), "elicitationId": name}
    return {"jsonrpc": "2.0", "id": f"signoff-{name}", "method": _METHOD, "params": params}


def completion(name: str) -> Message:
    return {"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": {"elicitationId": name}}


def new_elicitation_name() -> str:
    return uuid.uuid4().hex


def _params(page: DecisionPage) -> Message:
    return {"mode": "url", "message": page.words, "url": page.url}
