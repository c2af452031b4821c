"""Converts a schema of alternatives to one of an object, since some clients accept nothing else."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

_ALTERNATIVES: Final = ("oneOf", "anyOf")
_TOP: Final = (*_ALTERNATIVES, "allOf", "$ref", "if", "then", "else", "not", "dependentSchemas")
_LOCAL: Final = "#/"
_DEPTH: Final = 20


def is_plain_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object" and not any(name in schema for name in _TOP)


def as_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return one object that accepts at least as much as `schema`, with the properties of all alternatives.

    It requires only the properties that every alternative requires. `schema` must still check arguments.
    """
    if is_plain_object(schema):
        return dict(schema)
    properties, required = _merge(schema, schema, _DEPTH)
    other_keywords = {name: value for name, value in schema.items() if name not in (*_TOP, "unevaluatedProperties")}
    merged = {**other_keywords, "type": "object", "properties": properties}
    merged.pop("required", None)
    if required:
        merged["required"] = sorted(required)
    if words := _alternative_words(schema):
        merged["description"] = f"{schema.get('description', '')} {words}".strip()
    return merged


def _merge(schema: Any, whole: Mapping[str, Any], depth: int) -> tuple[dict[str, Any], frozenset[str]]:
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
    merged = dict(properties)
    for name, value in more.items():
        if name not in merged:
            merged[name] = value
        elif merged[name] != value:
            kinds_before = (
                merged[name].get("anyOf")
                if isinstance(merged[name], Mapping) and set(merged[name]) == {"anyOf"}
                else None
            )
            kinds = list(kinds_before or [merged[name]])
            merged[name] = {"anyOf": kinds if value in kinds else [*kinds, value]}
    return merged


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
