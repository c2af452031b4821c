"""Results of handlers, and the text that the model reads of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from pydantic_core import to_jsonable_python


@dataclass(frozen=True)
class ToolResult:
    """An explicit success (N13)."""

    value: Any
    """What the model reads."""
    structured: Any = None
    """JSON for programs."""
    cost: float = 0.0
    """What the call cost, in USD."""
    data_update: Any = None
    """A JSON object: what the tool's `updates` name of it is merged into the conversation's data."""
    context_update: Any = None
    """A JSON object: what the tool's `updates` name of it is merged into the conversation's context."""
    meta: Any = None
    """A JSON object about the call, for record and transcript; the model does not read it."""


FailureCode: TypeAlias = Literal["execution_failed", "input_invalid", "not_available"]


@dataclass(frozen=True)
class ToolFailure:
    """An explicit failure (E08)."""

    message: str
    """What the model reads."""
    code: FailureCode = "execution_failed"
    """The code of the call."""
    data_update: Any = None
    """As in `ToolResult`: a check that failed may keep what it found."""
    context_update: Any = None
    """As in `ToolResult`."""
    meta: Any = None
    """As in `ToolResult`."""


@dataclass(frozen=True)
class HandOff:
    """A result that says that the work goes on elsewhere: the call succeeds with that (B43).

    Its real result comes later and is told to the turn, or to the one that goes on in its place.
    """

    event_id: str
    """The id under which the result will come."""


def hand_off_result(handed: HandOff, tool: str) -> ToolResult:
    """Returns the result that the model and programs read of work that was handed off."""
    words = (
        f"`{tool}` handed the work off as `{handed.event_id}`. Its result is not there yet: it will reach you as a "
        "message that names this id. Do not call it again for that; answer `awaiting` if you have nothing else to do."
    )
    return ToolResult(words, {"event_id": handed.event_id})


Result: TypeAlias = ToolResult | ToolFailure


@dataclass(frozen=True)
class ReducerInput:
    """The second argument of a reducer, beside the result."""

    args: Mapping[str, Any]
    """The call's arguments."""
    turn_count: int = 0
    """The number of the completion that proposed the call, from 1; 0 where that is not known."""


class TrimmedText(NamedTuple):
    """A text cut to a budget."""

    text: str
    """What is left, with a marker where it was cut."""
    truncated: bool
    """Whether it was cut."""
    original_chars: int
    """The full length in code points."""


def jsonable(value: Any) -> Any:
    """Converts `value` to plain JSON data: models, dates, sets and the like. Never raises.

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
    """Returns the text the model reads: a string as it is, anything else as compact JSON. Never raises."""
    if isinstance(value, str):
        return _encodable(value)
    return json.dumps(jsonable(value), ensure_ascii=False, separators=(",", ":"))


def trim(text: str, budget: int) -> TrimmedText:
    """Cuts `text` to `budget` characters and adds the marker of E22, by which it is longer than the budget (E23)."""
    total = len(text)
    if total <= budget:
        return TrimmedText(text, False, total)
    return TrimmedText(f"{text[: max(budget, 0)]}\n[truncated — {total} chars total]", True, total)


def _type_name(value: Any) -> str:
    return f"<{type(value).__name__}>"


def _encodable(text: str) -> str:
    # Python holds lone surrogates, as in names of files that are no UTF-8; neither the store nor Temporal's JSON can.
    return text.encode("utf-8", "replace").decode("utf-8")
