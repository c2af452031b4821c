"""Makes the card of an actor: exactly its tools that are exposed to other agents."""

import hashlib
import json
from functools import cached_property
from typing import Any, Final, NamedTuple

from signoff.calls import Exposed, ExposedActor, ExposedTool
from signoff.contracts.message import RESERVED_PART_TYPES
from signoff.contracts.names import PEER
from signoff.plugins.a2a.rpc_request import PROTOCOL

PEERS: Final = "/a2a"
"""The prefix of the addresses of actors for other agents."""
CARD_PATH: Final = "/.well-known/agent-card.json"
CARD_SECONDS: Final = 3600
"""How long the reader of a card may cache it."""
TOOLS: Final = "urn:signoff:a2a:tools:1"
"""The card's extension for facts without a field in the protocol."""
PART: Final = "urn:signoff:a2a:part:"
"""The prefix of the extension with which a peer accepts a type of parts."""
MEDIA_TYPES: Final = ("text/plain", "application/json")
_CONSUMES: Final = ("text", "data")


class AgentCard(NamedTuple):
    """A card with its headers' values."""

    body: bytes
    etag: str


class AgentCards:
    """Makes the cards of exposed actors, each once. They never change while a gateway runs."""

    def __init__(self, exposed: Exposed, public_url: str) -> None:
        self._exposed = exposed
        self._public_url = public_url

    def card(self, actor: str = "") -> AgentCard | None:
        """Return the card of an actor, by default of the first exposed one. `None` if it is not exposed."""
        return self._cards.get(actor or next(iter(self._cards), ""))

    @cached_property
    def _cards(self) -> dict[str, AgentCard]:
        found: dict[str, AgentCard] = {}
        for actor in self._exposed.actors:
            card = agent_card(self._exposed, actor, self._public_url)
            body = json.dumps(card, ensure_ascii=False, separators=(",", ":")).encode()
            found[actor.name] = AgentCard(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
        return found


def agent_card(exposed: Exposed, actor: ExposedActor, public_url: str) -> dict[str, Any]:
    types = [each for each in exposed.part_types if each not in RESERVED_PART_TYPES]
    withheld = [each for each in types if each in exposed.withheld]
    details = {
        "tools": {each.name: _details(each) for each in actor.tools},
        "envelope": {"parts": types, "consumes": _CONSUMES},
    }
    extensions = [
        {"uri": TOOLS, "description": "Schemas of the tools, and whether people are asked.", "params": details},
        *({"uri": PART + each, "description": f"Names parts of type `{each}` as taken."} for each in withheld),
    ]
    return {
        "name": actor.name,
        "description": actor.description or f"The agent `{actor.name}`.",
        "supportedInterfaces": [
            {"url": f"{public_url}{PEERS}/{actor.name}", "protocolBinding": "JSONRPC", "protocolVersion": PROTOCOL}
        ],
        "version": exposed.version[:16],
        "capabilities": {
            "streaming": True,
            "pushNotifications": False,
            "extendedAgentCard": False,
            "extensions": extensions,
        },
        "securitySchemes": {
            "token": {
                "httpAuthSecurityScheme": {
                    "scheme": "Bearer",
                    "description": f"A personal token of the scope `{PEER}`, issued by the operator of this gateway.",
                }
            }
        },
        "securityRequirements": [{"schemes": {"token": {"list": []}}}],
        "defaultInputModes": list(MEDIA_TYPES),
        "defaultOutputModes": list(MEDIA_TYPES),
        "skills": [_skill(each) for each in actor.tools],
    }


def _skill(shown: ExposedTool) -> dict[str, Any]:
    examples = shown.input_schema.get("examples")
    return {
        "id": shown.name,
        "name": shown.title or shown.name,
        "description": shown.description,
        # The specification requires at least one.
        "tags": list(shown.tags) or ["tool"],
        "examples": [json.dumps(each, ensure_ascii=False) for each in examples] if isinstance(examples, list) else [],
    }


def _details(shown: ExposedTool) -> dict[str, Any]:
    found: dict[str, Any] = {"inputSchema": shown.input_schema, "approval": shown.approval}
    return found if shown.output_schema is None else {**found, "outputSchema": shown.output_schema}


def consumed_types(header: str) -> frozenset[str]:
    """Read the types of parts that a peer accepts from `A2A-Extensions`."""
    named = (each.strip() for each in header.split(","))
    return frozenset(each.removeprefix(PART) for each in named if each.startswith(PART))
