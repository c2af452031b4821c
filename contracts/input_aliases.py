"""Translates other names for fields in input to Signoff's own; output has Signoff's own only (X21)."""

from collections.abc import Mapping
from typing import Any, Final

REQUEST_ALIASES: Final[Mapping[str, str]] = {"handler": "actor", "event": "turn"}
ANSWER_ALIASES: Final[Mapping[str, str]] = {"turnState": "state", "conversationState": "state", "pass_to": "passTo"}


def resolve_aliases(given: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    """Returns `given` with each key of `words` renamed.

    Raises `ValueError` where two keys of one meaning differ; nobody can tell which of them was meant.
    """
    ours = {key: value for key, value in given.items() if key not in words}
    for key, value in given.items():
        name = words.get(key)
        if name is None:
            continue
        if name in ours and ours[name] != value:
            raise ValueError(f"`{name}` and `{key}` mean the same and differ; keep one")
        ours[name] = value
    return ours
