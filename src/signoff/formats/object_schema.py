"""Writes a schema of alternatives as that of one object, for clients that take nothing else at the top of a schema."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

_ALTERNATIVES: Final = ("oneOf", "anyOf")
_TOP: Final = (*_ALTERNATIVES, "allOf", "$ref", "if", "then", "else", "not", "dependentSchemas")
_LOCAL: Final = "#/"
_DEPTH: Final = 20


def is_plain_object(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema says at its top that it is an object, and nothing that chooses between schemas."""
    return schema.get("type") == "object" and not any(name in schema for name in _TOP)


def as_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return one object with the properties of all alternatives; it takes all that `schema` takes, and more.

    Required is what each alternative requires. Arguments are still checked by `schema` itself.
    """
    if is_plain_object(schema):
        return dict(schema)
    properties, required = _merge(schema, schema, _DEPTH)
    kept = {name: value for name, value in schema.items() if name not in (*_TOP, "unevaluatedProperties")}
    found = {**kept, "type": "object", "properties": properties}
    found.pop("required", None)
    if required:
        found["required"] = sorted(required)
    if words := _alternative_words(schema):
        found["description"] = f"{schema.get('description', '')} {words}".strip()
    return found


def _merge(schema: Any, whole: Mapping[str, Any], depth: int) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the properties that a schema knows anywhere at its top, and the names that it requires in any case."""
    if not isinstance(schema, Mapping) or depth == 0:
        return {}, frozenset()
    properties: dict[str, Any] = dict(schema.get("properties", {}))
    required = frozenset(schema.get("required", ()))
    if isinstance(schema.get("$ref"), str):
        more, needed = _merge(_resolve(schema["$ref"], whole), whole, depth - 1)
        properties, required = _add(properties, more), required | needed
    for part in schema.get("allOf", ()):
        more, needed = _merge(part, whole, depth - 1)
        properties, required = _add(properties, more), required | needed
    for name in _ALTERNATIVES:
        found = [_merge(part, whole, depth - 1) for part in schema.get(name, ())]
        for more, _ in found:
            properties = _add(properties, more)
        if found:
            required |= frozenset.intersection(*(needed for _, needed in found))
    for name in ("then", "else"):
        properties = _add(properties, _merge(schema.get(name), whole, depth - 1)[0])
    return properties, required


def _add(properties: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(properties)
    for name, value in more.items():
        if name not in found:
            found[name] = value
        elif found[name] != value:
            known = (
                found[name].get("anyOf") if isinstance(found[name], Mapping) and set(found[name]) == {"anyOf"} else None
            )
            kinds = list(known or [found[name]])
            found[name] = {"anyOf": kinds if value in kinds else [*kinds, value]}
    return found


def _resolve(reference: str, whole: Mapping[str, Any]) -> Any:
    found: Any = whole
    if not reference.startswith(_LOCAL):
        return {}
    for part in reference.removeprefix(_LOCAL).split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _alternative_words(schema: Mapping[str, Any]) -> str:
    parts = next((schema[name] for name in _ALTERNATIVES if name in schema), ())
    named = [_names(_merge(part, schema, _DEPTH)[1]) for part in parts]
    return f"Give one of: {'; '.join(named)}." if len(set(named)) > 1 and all(named) else ""


def _names(names: Iterable[str]) -> str:
    return " and ".join(f"`{each}`" for each in sorted(names))
