"""Annotated records: what a tool found, field by field, with what is to be known of each field (B35)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from signoff.approvals.redaction import HIDDEN
from signoff.registry.results.tool_result import jsonable

Privacy: TypeAlias = Literal["public", "private", "secret"]


@dataclass(frozen=True)
class Annotations:
    """What is to be known of one field, said where its data comes from.

    `tier` says how firmly it may be built on, such as `anchored`; `temporal` how a time is to be told. `private` fields
    are kept from the model, `secret` ones hidden in the record as well. `slots` are `namespace.name` to JSON, for the
    destinations that read the namespace.
    """

    tier: str = ""
    temporal: str = ""
    privacy: Privacy = "public"
    slots: Mapping[str, Any] = field(default_factory=dict)


NO_ANNOTATIONS: Final = Annotations()


@dataclass(frozen=True)
class Field:
    """One field of a record: any JSON value, and its annotations."""

    value: Any
    annotations: Annotations = NO_ANNOTATIONS


@dataclass(frozen=True)
class AnnotatedRecord:
    """Fields by name. A handler that returns one sends it to every destination, each through its filter (B32)."""

    fields: Mapping[str, Field]

    @property
    def values(self) -> dict[str, Any]:
        """The values by name, as plain JSON data."""
        return {name: jsonable(each.value) for name, each in self.fields.items()}

    def only(self, names: Collection[str]) -> "AnnotatedRecord":
        """The fields of these names."""
        return AnnotatedRecord({name: each for name, each in self.fields.items() if name in names})

    def without(self, names: Collection[str]) -> "AnnotatedRecord":
        """All fields but those of these names."""
        return AnnotatedRecord({name: each for name, each in self.fields.items() if name not in names})

    def hiding(self, names: Collection[str]) -> "AnnotatedRecord":
        """The same fields, `[hidden]` in the place of the values of these names."""
        hidden = {name: Field(HIDDEN, each.annotations) for name, each in self.fields.items() if name in names}
        return AnnotatedRecord({**self.fields, **hidden})


Filter: TypeAlias = Callable[[AnnotatedRecord], AnnotatedRecord]
"""What one destination gets of a record. Pure: it reads and writes nothing else."""


def identity(record: AnnotatedRecord) -> AnnotatedRecord:
    """The whole record. Only `ui-streaming` and `cache` may have it, and only if they are declared so (X24)."""
    return record


def for_model(record: AnnotatedRecord) -> AnnotatedRecord:
    """What the model reads where no filter is declared: the public fields."""
    return record.only([name for name, each in record.fields.items() if each.annotations.privacy == "public"])


def for_record(record: AnnotatedRecord) -> AnnotatedRecord:
    """What is recorded where no filter is declared: every field; of a secret one its name alone."""
    # By what may be shown, not by `secret`: nothing checks the word at run time, and a misspelt one hides the field.
    known = ("public", "private")
    return record.hiding([name for name, each in record.fields.items() if each.annotations.privacy not in known])


def copied(record: AnnotatedRecord) -> AnnotatedRecord:
    """The record with values of its own, of plain JSON. Raises `TypeError` for one that a handler made wrongly."""
    if not isinstance(record.fields, Mapping):
        raise TypeError("the fields of a record are a mapping")
    return AnnotatedRecord({name: _copied(name, each) for name, each in record.fields.items()})


def read_by(record: AnnotatedRecord, namespaces: Collection[str]) -> AnnotatedRecord:
    """The record with the slots of these namespaces and no others."""
    return AnnotatedRecord({name: _read(each, namespaces) for name, each in record.fields.items()})


def _copied(name: Any, each: Any) -> Field:
    if not (isinstance(name, str) and isinstance(each, Field) and isinstance(each.annotations, Annotations)):
        raise TypeError("each field of a record is a `Field` by its name")
    slots = jsonable(each.annotations.slots)
    own = replace(each.annotations, slots=slots if isinstance(slots, dict) else {})
    return Field(jsonable(each.value), own)


def _read(each: Field, namespaces: Collection[str]) -> Field:
    slots = {key: value for key, value in each.annotations.slots.items() if key.partition(".")[0] in namespaces}
    return Field(each.value, replace(each.annotations, slots=slots))
