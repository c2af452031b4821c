"""What a handler returns, and how the model gets to read it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from pydantic_core import to_jsonable_python


@dataclass(frozen=True)
class ToolResult:
    """An explicit success (N13): `value` for the model, `structured` JSON for programs, `cost` in USD.

    `data_update` and `context_update` are JSON objects: what the tool's `updates` name of them is merged into the data
    and the context of the conversation. What is no such object is left out.
    """

    value: Any
    structured: Any = None
    cost: float = 0.0
    data_update: Any = None
    context_update: Any = None


FailureCode: TypeAlias = Literal["execution_failed", "input_invalid", "not_available"]


@dataclass(frozen=True)
class ToolFailure:
    """An explicit failure: `code` becomes the call's code and the model reads `message` (E08)."""

    message: str
    code: FailureCode = "execution_failed"


@dataclass(frozen=True)
class Handed:
    """The work was handed off, and goes on elsewhere: the call succeeds with that (B43).

    Its real result comes later, under `event_id`, and is told to the turn, or to the one that goes on in its place.
    """

    event_id: str


def handed_result(handed: Handed, tool: str) -> ToolResult:
    """What the model and programs are told of work that was handed off."""
    words = (
        f"`{tool}` handed the work off as `{handed.event_id}`. Its result is not there yet: it will reach you as a "
        "message that names this id. Do not call it again for that; answer `awaiting` if you have nothing else to do."
    )
    return ToolResult(words, {"event_id": handed.event_id})


Result: TypeAlias = ToolResult | ToolFailure


@dataclass(frozen=True)
class ReducerInput:
    """What a reducer is told beside the result: the call's arguments, and in which completion it was proposed.

    `turn_count` counts from 1; 0 where that is not known.
    """

    args: Mapping[str, Any]
    turn_count: int = 0


class Trimmed(NamedTuple):
    """A text cut to a budget; `original_chars` is its full length in code points."""

    text: str
    truncated: bool
    original_chars: int


def jsonable(value: Any) -> Any:
    """`value` as plain JSON data: models, dates, sets and the like converted. Never raises.

    What has no JSON form becomes `<TypeName>`: the side effect has happened, so its result must not turn into an error.
    """
    try:
        plain = to_jsonable_python(value, fallback=_type_name)
        # NaN and the infinities are no JSON, though Python writes them so: they become texts.
        return json.loads(_encodable(json.dumps(plain, ensure_ascii=False)), parse_constant=str)
    except Exception:
        # What a handler returns may run code of its own here.
        return _type_name(value)


def render_value(value: Any) -> str:
    """The text the model reads: a string as it is, anything else as compact JSON. Never raises."""
    if isinstance(value, str):
        return _encodable(value)
    return json.dumps(jsonable(value), ensure_ascii=False, separators=(",", ":"))


def trim(text: str, budget: int) -> Trimmed:
    """The first `budget` characters and the marker of E22; the result is longer than the budget by the marker (E23)."""
    total = len(text)
    if total <= budget:
        return Trimmed(text, False, total)
    return Trimmed(f"{text[: max(budget, 0)]}\n[truncated — {total} chars total]", True, total)


def _type_name(value: Any) -> str:
    return f"<{type(value).__name__}>"


def _encodable(text: str) -> str:
    # Python holds lone surrogates, as in names of files that are no UTF-8; neither the store nor Temporal's JSON can.
    return text.encode("utf-8", "replace").decode("utf-8")
