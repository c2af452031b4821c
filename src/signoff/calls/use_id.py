"""Ids of use requests."""

import uuid
from typing import Final

from signoff.contracts.canonical_json import sha256_hex

_OWN: Final = "key:"
"""The prefix of an id chosen by the agent."""
_USE_HEX: Final = 32


def make_use_id(given: str | None) -> str:
    """Without the agent's own id, it is new and unique."""
    return uuid.uuid4().hex if given is None else f"{_OWN}{sha256_hex([given])[:_USE_HEX]}"
