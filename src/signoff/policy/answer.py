"""The answer of one engine to one expression."""

from dataclasses import dataclass
from typing import Any, Literal

AnswerKind = Literal["true", "false", "error", "other"]


@dataclass(frozen=True)
class EngineAnswer:
    """One engine's answer to one expression."""

    rule: str
    engine: str
    kind: AnswerKind
    """`true` or `false` only for an exact CEL boolean, `other` for any other value."""
    note: str = ""
    """The cause of an error. Never contains an argument's value."""


@dataclass(frozen=True)
class EngineOutcome:
    """The result of an expression in one engine."""

    kind: AnswerKind
    note: str = ""
    value: Any = None
    """Only for the kind `other`."""
