"""Annotated records: data of a tool, field by field, with annotations of each field (B35)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from signoff.approvals.redaction import HIDDEN
from signoff.registry.results.tool_result import jsonable

Privacy: TypeAlias = Literal["public", "private", "secret"]


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


NO_ANNOTATIONS: Final = Annotations()


@dataclass(frozen=True)
class RecordField:
    """One field of a record."""

    value: Any
    """Any JSON value."""
    annotations: Annotations = NO_ANNOTATIONS
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
