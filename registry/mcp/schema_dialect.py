"""Rewrites JSON Schemas of older dialects, which many MCP servers write, in JSON Schema 2020-12."""

from collections.abc import Mapping
from typing import Any, Final

_OLDER: Final = ("draft-06/schema", "draft-07/schema", "draft/2019-09/schema")
"""How the dialects end that differ from 2020-12 in what is rewritten here, and in nothing that checks a value."""
_ONE: Final = frozenset(
    (
        "items", "additionalItems", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else",
        "unevaluatedItems", "unevaluatedProperties",
    )
)  # fmt: skip
"""Keywords whose value is a schema."""
_MANY: Final = frozenset(("allOf", "anyOf", "oneOf"))
_NAMED: Final = frozenset(("properties", "patternProperties", "definitions", "$defs", "dependentSchemas"))


def as_2020_12(schema: Any) -> Any:
    """Returns a schema in 2020-12; one that says that it is of that dialect, or of none, is returned as it is.

    A dialect that is not known stays, so that whoever compiles the schema refuses it.
    """
    if not isinstance(schema, Mapping):
        return schema
    dialect = str(schema.get("$schema", "")).rstrip("#")
    if not dialect.endswith(_OLDER):
        return schema
    return _rewrite(schema)


def _rewrite(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$schema":
            continue
        if key == "items" and isinstance(value, list):
            made["prefixItems"] = [_rewrite(each) for each in value]
            if "additionalItems" in schema:
                made["items"] = _rewrite(schema["additionalItems"])
        elif key == "additionalItems":
            # Beside one schema for all items, or none, it says nothing.
            continue
        elif key == "dependencies" and isinstance(value, Mapping):
            made |= _dependencies(value)
        elif key in _ONE:
            made[key] = _rewrite(value)
        elif key in _MANY and isinstance(value, list):
            made[key] = [_rewrite(each) for each in value]
        elif key in _NAMED and isinstance(value, Mapping):
            made[key] = {name: _rewrite(each) for name, each in value.items()}
        else:
            made[key] = value
    return made


def _dependencies(given: Mapping[str, Any]) -> dict[str, Any]:
    required = {name: each for name, each in given.items() if isinstance(each, list)}
    schemas = {name: _rewrite(each) for name, each in given.items() if not isinstance(each, list)}
    return {
        **({"dependentRequired": required} if required else {}),
        **({"dependentSchemas": schemas} if schemas else {}),
    }
