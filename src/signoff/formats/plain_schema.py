"""Recognises valid JSON Schemas by a quick look, for the keywords that nearly all tools' schemas are made of.

Checking against the metaschema takes most of what a catalog takes to build: a millisecond a tool.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_REFERENCE: Final = re.compile(r"#/\$defs/[A-Za-z0-9_]+\Z")


def plainly_valid(schema: Any) -> bool:
    """Returns true only for what the metaschema of 2020-12 takes as well; false where that has to be asked."""
    # Exact types of scalars below: `isinstance` takes a boolean for a number, and a subclass may answer as it likes.
    if not isinstance(schema, dict):
        return type(schema) is bool
    for keyword, value in schema.items():
        fits = _FITS.get(keyword)
        if fits is None or not fits(value):
            return False
    return True


def _text(value: Any) -> bool:
    return type(value) is str


def _flag(value: Any) -> bool:
    return type(value) is bool


def _number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _type(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(type(each) is str and each in _TYPES for each in value) and _unique(value)
    return type(value) is str and value in _TYPES


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is str for each in value) and _unique(value)


def _unique(values: list[str]) -> bool:
    return len(set(values)) == len(values)


def _is_anything(value: Any) -> bool:
    return True


def _list(value: Any) -> bool:
    return isinstance(value, list)


def _schemas(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(plainly_valid, value))


def _named_schemas(value: Any) -> bool:
    return isinstance(value, dict) and all(type(name) is str and plainly_valid(each) for name, each in value.items())


def _reference(value: Any) -> bool:
    return type(value) is str and _REFERENCE.match(value) is not None


# Neither `pattern` nor `patternProperties` may stand here: `compile_schema` looks for patterns that take more than
# linear time only in schemas that are not plain.
_FITS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "type": _type,
    "properties": _named_schemas,
    "$defs": _named_schemas,
    "$ref": _reference,
    "required": _names,
    "additionalProperties": plainly_valid,
    "items": plainly_valid,
    "anyOf": _schemas,
    "oneOf": _schemas,
    "allOf": _schemas,
    "enum": _list,
    "examples": _list,
    "const": _is_anything,
    "default": _is_anything,
    "title": _text,
    "description": _text,
    "format": _text,
    "writeOnly": _flag,
    "readOnly": _flag,
    "deprecated": _flag,
    "uniqueItems": _flag,
    "minimum": _number,
    "maximum": _number,
    "exclusiveMinimum": _number,
    "exclusiveMaximum": _number,
    "minLength": _count,
    "maxLength": _count,
    "minItems": _count,
    "maxItems": _count,
    "minProperties": _count,
    "maxProperties": _count,
}
