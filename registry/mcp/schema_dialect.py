"""Rewrites JSON Schemas of older dialects and of OpenAPI, which many MCP servers write, in JSON Schema 2020-12."""

from collections.abc import Mapping
from typing import Any, Final

from signoff.formats.linear_pattern import pattern_problem

_OLDER: Final = ("draft-04/schema", "draft-05/schema", "draft-06/schema", "draft-07/schema", "draft/2019-09/schema")
"""How the dialects end that differ from 2020-12 in what is rewritten here, and in nothing that checks a value."""
_STRICT_LIMITS: Final = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
"""Flags of draft 4 and OpenAPI 3.0, and the limits that they are about."""
_SAFE: Final = 2**53 - 1
"""The largest integer that JSON carries exactly; calls with a larger one are refused."""
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
    return _rewrite(schema, is_old=dialect.endswith(_OLDER))


def _rewrite(schema: Any, *, is_old: bool) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _ONE and isinstance(value, Mapping):
            made[key] = _rewrite(value, is_old=is_old)
        elif key in _MANY and isinstance(value, list):
            made[key] = [_rewrite(each, is_old=is_old) for each in value]
        elif key in _NAMED and isinstance(value, Mapping):
            made[key] = {name: _rewrite(each, is_old=is_old) for name, each in value.items()}
        else:
            made[key] = value
    if is_old:
        made = _rewrite_keywords(made)
    return _let_null(_fit_limits(made))


def _fit_limits(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with limits as 2020-12 has them, which JSON carries exactly."""
    made = dict(schema)
    for flag, limit in _STRICT_LIMITS.items():
        if isinstance(made.get(flag), bool):
            is_strict = made.pop(flag)
            if is_strict and limit in made:
                made[flag] = made.pop(limit)
    for key in ("maximum", "exclusiveMaximum"):
        if _is_integer(made.get(key)) and made[key] > _SAFE:
            del made[key]
            made["maximum"] = min(_SAFE, made.get("maximum", _SAFE))
    for key in ("minimum", "exclusiveMinimum"):
        if _is_integer(made.get(key)) and made[key] < -_SAFE:
            del made[key]
            made["minimum"] = max(-_SAFE, made.get("minimum", -_SAFE))
    if _is_integer(made.get("default")) and abs(made["default"]) > _SAFE:
        del made["default"]
    return made


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _let_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that takes null where `nullable` of OpenAPI 3.0 says so."""
    if not isinstance(schema.get("nullable"), bool):
        return schema
    made = {key: value for key, value in schema.items() if key != "nullable"}
    if not schema["nullable"]:
        return made
    kind = made.get("type")
    if kind is not None:
        kinds = [kind] if isinstance(kind, str) else list(kind)
        return made | {"type": [*kinds, *(["null"] if "null" not in kinds else [])]}
    if not made.keys() & {"$ref", *_MANY}:
        return made
    words: dict[str, Any] = {key: made.pop(key) for key in ("title", "description", "default") if key in made}
    return words | {"anyOf": [made, {"type": "null"}]}


def leave_patterns(schema: Any) -> tuple[Any, list[str]]:
    """Return a schema without the patterns that RE2 cannot read, and these patterns: the server checks them.

    Each stays in a comment, so that a change of it is seen.
    """
    left: list[str] = []

    def leave(node: Any) -> Any:
        if not isinstance(node, Mapping):
            return node
        made: dict[str, Any] = {}
        for key, value in node.items():
            if key in _ONE and isinstance(value, Mapping):
                made[key] = leave(value)
            elif key in (*_MANY, "prefixItems") and isinstance(value, list):
                made[key] = [leave(each) for each in value]
            elif key in _NAMED and isinstance(value, Mapping):
                made[key] = {name: leave(each) for name, each in value.items()}
            elif key == "pattern" and isinstance(value, str) and pattern_problem({"pattern": value})[1]:
                made["$comment"] = f"The server checks the pattern: {value}"
                left.append(value)
            else:
                made[key] = value
        return made

    return leave(schema), left


def _rewrite_keywords(schema: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$schema":
            continue
        if key == "items" and isinstance(value, list):
            made["prefixItems"] = [_rewrite(each, is_old=True) for each in value]
            if "additionalItems" in schema:
                made["items"] = schema["additionalItems"]
        elif key == "additionalItems":
            # Beside one schema for all items, or none, it says nothing.
            continue
        elif key == "dependencies" and isinstance(value, Mapping):
            made |= _dependencies(value)
        else:
            made[key] = value
    return made


def _dependencies(given: Mapping[str, Any]) -> dict[str, Any]:
    required = {name: each for name, each in given.items() if isinstance(each, list)}
    schemas = {name: _rewrite(each, is_old=True) for name, each in given.items() if not isinstance(each, list)}
    return {
        **({"dependentRequired": required} if required else {}),
        **({"dependentSchemas": schemas} if schemas else {}),
    }
