"""Has the client of an agent show its user the page on which they may decide: URL elicitation of MCP, in both eras.

What the client answers is whether its user opened the page. Nothing follows from it: they decide there, signed in.
"""

import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

Message = dict[str, Any]
"""A message of JSON-RPC."""
SendBeside = Callable[[Message], Awaitable[None]]
"""Sends a client a message beside the answer of its request."""
SEND_BESIDE: Final = "signoff.mcp.send"
"""Where in a request's scope that is kept."""
_METHOD: Final = "elicitation/create"
_INPUT: Final = "page"
"""The name of the page among what a client is asked for."""


class DecisionPage(NamedTuple):
    """The page on which the person in whose name a call is asked for may decide about it."""

    url: str
    words: str


def opens_urls(capabilities: Any) -> bool:
    """Returns whether a client whose `capabilities` these are shows its user a page that it is asked to open."""
    elicitation = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    return isinstance(elicitation, dict) and isinstance(elicitation.get("url"), dict)


def input_requests(page: DecisionPage) -> dict[str, Message]:
    """Makes the requests that a client of 2026-07-28 answers with its next round."""
    return {_INPUT: {"method": _METHOD, "params": _params(page)}}


def elicitation(page: DecisionPage, name: str) -> Message:
    """Returns the request to a client of 2025-11-25. Its answer comes to any gateway, and is not waited for."""
    params = {**_params(page), "elicitationId": name}
    return {"jsonrpc": "2.0", "id": f"signoff-{name}", "method": _METHOD, "params": params}


def completion(name: str) -> Message:
    """Returns the notification that nothing is to be done on a page any more."""
    return {"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": {"elicitationId": name}}


def new_elicitation_name() -> str:
    """Returns the name of an elicitation that no other one has."""
    return uuid.uuid4().hex


def _params(page: DecisionPage) -> Message:
    return {"mode": "url", "message": page.words, "url": page.url}
