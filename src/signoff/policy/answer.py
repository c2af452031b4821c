"""The answer of one engine to one expression."""

from dataclasses import dataclass
from typing import Any, Literal

AnswerKind = Literal["true", "false", "error", "other"]


@dataclass(frozen=True)
class EngineAnswer:
    """One engine's answer to one expression."""

    rule: str
    """The policy field or the rule's name."""
    engine: str
    """The engine."""
    kind: AnswerKind
    """`true` or `false` for an exact CEL boolean only, `other` for any other value."""
    note: str = ""
    """Why there is an error. No argument's value is ever in a note."""


@dataclass(frozen=True)
class EngineOutcome:
    """The outcome of an expression in one engine."""

    kind: AnswerKind
    """As in `EngineAnswer`."""
    note: str = ""
    """Why there is an error."""
    value: Any = None
    """The plain value, for a kind of `other`."""
