"""Ids of tries to use a permit."""

import uuid
from typing import Final

from signoff.contracts.canonical_json import sha256_hex

_OWN: Final = "key:"
"""How the id of a try begins that its agent chose."""
_USE_HEX: Final = 32


def make_use_id(given: str | None) -> str:
    """Return the id of a try; without one of the agent's own an id that nobody used before."""
    return uuid.uuid4().hex if given is None else f"{_OWN}{sha256_hex([given])[:_USE_HEX]}"
