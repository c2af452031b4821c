"""A tool's result: its value, annotated record and failure."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from pydantic_core import to_jsonable_python

from signoff.approvals.redaction import HIDDEN

Privacy: TypeAlias = Literal["public", "private", "secret"]


@dataclass(frozen=True)
class ToolResult:
    """A successful call, as a handler returns it, with more than a value."""

    value: Any
    """The value for the model."""
    structured: Any = None
    """JSON for programs."""
    cost: float = 0.0
    """The cost of the call in USD."""
    data_update: Any = None
    """A JSON object. Names in the tool's `updates` are merged into the conversation's data."""
    context_update: Any = None
    """A JSON object. Names in the tool's `updates` are merged into the conversation's context."""
    meta: Any = None
    """A JSON object about the call for audit log and transcript. The model does not read it."""
    next: str = ""
    """The next step of the route. Empty: the data decides."""


FailureCode: TypeAlias = Literal["execution_failed", "input_invalid", "not_available"]


@dataclass(frozen=True)
class ToolFailure:
    """A failed call, as a handler returns it. It is no exception."""

    message: str
    """The text for the model."""
    code: FailureCode = "execution_failed"
    """The code of the call."""
    data_update: Any = None
    """As in `ToolResult`: a failed check may keep its findings."""
    context_update: Any = None
    """As in `ToolResult`."""
    meta: Any = None
    """As in `ToolResult`."""
    value: Any = None
    """A result in spite of the failure. The model reads it after the message, programs as structured data."""
    next: str = ""
    """As in `ToolResult`."""


@dataclass(frozen=True)
class HandOff:
    """A result for work that continues elsewhere: the call succeeds.

    The final result arrives later, in this turn or the one that continues it.
    """

    event_id: str
    """The id of the later result."""


def hand_off_result(handed: HandOff, tool: str) -> ToolResult:
    words = (
        f"`{tool}` handed the work off as `{handed.event_id}`. Its result is not there yet: it will reach you as a "
        "message that names this id. Do not call it again for that; answer `awaiting` if you have nothing else to do."
    )
    return ToolResult(words, {"event_id": handed.event_id})


Result: TypeAlias = ToolResult | ToolFailure


@dataclass(frozen=True)
class ReducerInput:
    """The second argument of a reducer, after the result."""

    args: Mapping[str, Any]
    turn_count: int = 0
    """The number of the completion that proposed the call, from 1; 0 if unknown."""


class TrimmedText(NamedTuple):
    """A text cut to a limit."""

    text: str
    """Has a marker at the cut."""
    truncated: bool
    original_chars: int
    """The full length in code points."""


def jsonable(value: Any) -> Any:
    """Convert `value` to plain JSON data.

    Never raises. A value without a JSON form becomes `<TypeName>`: the effect has happened, so its result must not
    become an error.
    """
    try:
        plain = to_jsonable_python(value, fallback=_type_name)
        # NaN and infinities are not JSON, though Python writes them: convert them to text.
        return json.loads(_encodable(json.dumps(plain, ensure_ascii=False)), parse_constant=str)
    except Exception:
        # Foreign code of the handler's values may run here.
        return _type_name(value)


def render_value(value: Any) -> str:
    """Return a string unchanged, others as compact JSON. Never raises."""
    if isinstance(value, str):
        return _encodable(value)
    return json.dumps(jsonable(value), ensure_ascii=False, separators=(",", ":"))


def trim(text: str, budget: int) -> TrimmedText:
    """Cut `text` to `budget` characters and add the truncation marker, which exceeds the budget."""
    total = len(text)
    if total <= budget:
        return TrimmedText(text, False, total)
    return TrimmedText(f"{text[: max(budget, 0)]}\n[truncated — {total} chars total]", True, total)


def _type_name(value: Any) -> str:
    return f"<{type(value).__name__}>"


def _encodable(text: str) -> str:
    # Python allows lone surrogates, as in file names that are not UTF-8. Neither the store nor Temporal's JSON does.
    return text.encode("utf-8", "replace").decode("utf-8")


@dataclass(frozen=True)
class Annotations:
    """The annotations of one field, set at the source of its data."""

    tier: str = ""
    """The reliability of the value, such as `anchored`."""
    temporal: str = ""
    """The display of a time, such as `local`."""
    privacy: Privacy = "public"
    """The model does not get `private` fields. `secret` ones are also masked in the audit log."""
    slots: Mapping[str, Any] = field(default_factory=dict)
    """`namespace.name` to JSON, for the destinations that read the namespace."""


_NO_ANNOTATIONS: Final = Annotations()


@dataclass(frozen=True)
class RecordField:
    """One field of a record."""

    value: Any
    """Any JSON value."""
    annotations: Annotations = _NO_ANNOTATIONS


@dataclass(frozen=True)
class AnnotatedRecord:
    """A result of fields. Every destination gets it through its filter."""

    fields: Mapping[str, RecordField]

    @property
    def values(self) -> dict[str, Any]:
        """The values by name, as plain JSON data."""
        return {name: jsonable(each.value) for name, each in self.fields.items()}

    def only(self, names: Collection[str]) -> "AnnotatedRecord":
        """Return the fields of these names alone."""
        return AnnotatedRecord({name: each for name, each in self.fields.items() if name in names})

    def without(self, names: Collection[str]) -> "AnnotatedRecord":
        """Return all fields except these names."""
        return AnnotatedRecord({name: each for name, each in self.fields.items() if name not in names})

    def mask(self, names: Collection[str]) -> "AnnotatedRecord":
        """Return the record with `[hidden]` instead of the values of these names."""
        hidden = {name: RecordField(HIDDEN, each.annotations) for name, each in self.fields.items() if name in names}
        return AnnotatedRecord({**self.fields, **hidden})


Filter: TypeAlias = Callable[[AnnotatedRecord], AnnotatedRecord]
"""`(record)`: one destination's view. Pure."""


def identity(record: AnnotatedRecord) -> AnnotatedRecord:
    """Only for `ui-streaming` and `cache`, and only if declared."""
    return record


def for_model(record: AnnotatedRecord) -> AnnotatedRecord:
    """Return the public fields: the model's view without a declared filter."""
    return record.only([name for name, each in record.fields.items() if each.annotations.privacy == "public"])


def for_record(record: AnnotatedRecord) -> AnnotatedRecord:
    """Return the fields for the audit log without a declared filter: all, secret ones as names only."""
    # Check the allowed values, not `secret`: nothing validates the text at run time, and a typo must mask the field.
    known = ("public", "private")
    return record.mask([name for name, each in record.fields.items() if each.annotations.privacy not in known])


def copy_record(record: AnnotatedRecord) -> AnnotatedRecord:
    """Copy a record with its values as plain JSON. Raises `TypeError` for an invalid record."""
    if not isinstance(record.fields, Mapping):
        raise TypeError("the fields of a record are a mapping")
    return AnnotatedRecord({name: _copy(name, each) for name, each in record.fields.items()})


def select_slots(record: AnnotatedRecord, namespaces: Collection[str]) -> AnnotatedRecord:
    """Return the record with the slots of these namespaces only."""
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
