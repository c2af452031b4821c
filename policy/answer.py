"""What one engine says of one expression."""

from dataclasses import dataclass
from typing import Any, Literal

AnswerKind = Literal["true", "false", "error", "other"]


@dataclass(frozen=True)
class EngineAnswer:
    """`kind` is `true` or `false` for an exact CEL boolean only, `other` for any other value.

    `rule` is the policy field or rule name, `note` why there is an error. No argument's value is ever in a note.
    """

    rule: str
    engine: str
    kind: AnswerKind
    note: str = ""


@dataclass(frozen=True)
class Outcome:
    """What an engine made of an expression: plain `value` for a kind of `other`."""

    kind: AnswerKind
    note: str = ""
    value: Any = None
