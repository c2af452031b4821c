"""The result of a tool: its value, the record that it annotates, and its failure."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from pydantic_core import to_jsonable_python

from signoff.approvals.redaction import HIDDEN

Privacy: TypeAlias = Literal["public", "private", "secret"]


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
    next: str = ""
    """The step of the route at which the conversation continues; empty: as its data says."""


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
    value: Any = None
    """The result in spite of the failure: the model reads it after the message, programs as structured data."""
    next: str = ""
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


@dataclass(frozen=True)
class Annotations:
    """Annotations of one field, given where its data comes from."""

    tier: str = ""
    """How firmly it may be built on, such as `anchored`."""
    temporal: str = ""
    """How a time is to be shown, such as `local`."""
    privacy: Privacy = "public"
    """`private` fields are kept from the model, `secret` ones hidden in the record as well."""
    slots: Mapping[str, Any] = field(default_factory=dict)
    """`namespace.name` to JSON, for the destinations that read the namespace."""


_NO_ANNOTATIONS: Final = Annotations()


@dataclass(frozen=True)
class RecordField:
    """One field of a record."""

    value: Any
    """Any JSON value."""
    annotations: Annotations = _NO_ANNOTATIONS
    """Its annotations."""


@dataclass(frozen=True)
class AnnotatedRecord:
    """A result of fields. Where a handler returns one, every destination gets it through its filter (B32)."""

    fields: Mapping[str, RecordField]
    """The fields by name."""

    @property
    def values(self) -> dict[str, Any]:
        """Returns the values by name, as plain JSON data."""
        return {name: jsonable(each.value) for name, each in self.fields.items()}

    def only(self, names: Collection[str]) -> "AnnotatedRecord":
        """Returns the fields of these names."""
        return AnnotatedRecord({name: each for name, each in self.fields.items() if name in names})

    def without(self, names: Collection[str]) -> "AnnotatedRecord":
        """Returns all fields but those of these names."""
        return AnnotatedRecord({name: each for name, each in self.fields.items() if name not in names})

    def mask(self, names: Collection[str]) -> "AnnotatedRecord":
        """Returns the same fields, with `[hidden]` in the place of the values of these names."""
        hidden = {name: RecordField(HIDDEN, each.annotations) for name, each in self.fields.items() if name in names}
        return AnnotatedRecord({**self.fields, **hidden})


Filter: TypeAlias = Callable[[AnnotatedRecord], AnnotatedRecord]
"""`(record)`: what one destination gets of it. Pure: it reads and writes nothing else."""


def identity(record: AnnotatedRecord) -> AnnotatedRecord:
    """Returns the whole record. Only `ui-streaming` and `cache` may have it, and only if they are declared so (X24)."""
    return record


def for_model(record: AnnotatedRecord) -> AnnotatedRecord:
    """Returns the fields for the model where no filter is declared: the public ones."""
    return record.only([name for name, each in record.fields.items() if each.annotations.privacy == "public"])


def for_record(record: AnnotatedRecord) -> AnnotatedRecord:
    """Returns the fields for the record where no filter is declared: all; of a secret one its name alone."""
    # By what may be shown, not by `secret`: nothing checks the word at run time, and a misspelt one hides the field.
    known = ("public", "private")
    return record.mask([name for name, each in record.fields.items() if each.annotations.privacy not in known])


def copy_record(record: AnnotatedRecord) -> AnnotatedRecord:
    """Copies a record, its values as plain JSON. Raises `TypeError` for one that a handler made wrongly."""
    if not isinstance(record.fields, Mapping):
        raise TypeError("the fields of a record are a mapping")
    return AnnotatedRecord({name: _copy(name, each) for name, each in record.fields.items()})


def select_slots(record: AnnotatedRecord, namespaces: Collection[str]) -> AnnotatedRecord:
    """Returns the record with the slots of these namespaces and no others."""
    return AnnotatedRecord({name: _read(each, namespaces) for name, each in record.fields.items()})


def _copy(name: Any, each: Any) -> RecordField:
    if not (isinstance(name, str) and isinstance(each, RecordField) and isinstance(each.annotations, Annotations)):
        raise TypeError("each field of a record is a `RecordField` by its name")
    slots = jsonable(each.annotations.slots)
    own = replace(each.annotations, slots=slots if isinstance(slots, dict) else {})
    return RecordField(jsonable(each.value), own)


def _read(each: RecordField, namespaces: Collection[str]) -> RecordField:
    slots = {key: value for key, value in each.annotations.slots.items() if key.partition(".")[0] in namespaces}
    return RecordField(each.value, replace(each.annotations, slots=slots))
