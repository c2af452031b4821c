"""The types of the parts of an answer (B62) that are always known; an installation may declare more."""

from collections.abc import Iterable
from typing import Final

RESPONSE: Final = "response"
"""Words for the user; every answer has this part, made of `respond`'s `text`."""

PART_TYPES: Final = (
    "ack", "thinking", RESPONSE, "clarify", "error",
    "domain-data", "llm-context", "a2ui-surface", "artifact", "reasoning-trace", "citation", "progress",
)  # fmt: skip
"""What a model may add to its answer."""
RESERVED_PART_TYPES: Final = ("approval-request", "approval-response")
"""Made by the engine or sent by people, never written by a model."""


def part_types(more: Iterable[str] = ()) -> tuple[str, ...]:
    """Returns the types that a model may use where `more` are declared beside the known ones."""
    return (*PART_TYPES, *more)
