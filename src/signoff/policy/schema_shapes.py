"""Reads JSON Schema as shapes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from signoff.formats.schema_node import SchemaNode

ShapeKind = Literal["int", "number", "string", "bool", "list", "object", "map", "any"]

# A schema may refer to itself endlessly. Below this depth it is read as unchecked.
_MAX_DEPTH: Final = 16
_SCALARS: Final[Mapping[str, ShapeKind]] = {
    "integer": "int",
    "number": "number",
    "string": "string",
    "boolean": "bool",
}


@dataclass(frozen=True)
class DataShape:
    """One place in the data.

    `object` has declared `fields`, `map` any names, `any` is not checked.
    """

    kind: ShapeKind
    nullable: bool = False
    fields: Mapping[str, "DataShape"] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    items: "DataShape | None" = None
    """For a map, the shape of its values."""

    def step(self, name: str) -> "DataShape | None":
        """`name` is `[]` for an item. Return `None` if it is not declared."""
        if name == "[]":
            return self.items
        return self.fields.get(name)


ANY: Final = DataShape("any")


def read_schema(schema: Any) -> DataShape:
    return _read(SchemaNode.of(schema), 0)


def _read(node: SchemaNode | None, depth: int) -> DataShape:
    if node is None or not node.keywords or depth > _MAX_DEPTH:
        return ANY
    # Keywords next to a `$ref` can only narrow it, so the shape without them is still true.
    if "$ref" in node.keywords:
        return _read(node.target(node.keywords["$ref"]), depth + 1)
    for union in ("anyOf", "oneOf"):
        if union in node.keywords:
            # With several alternatives neither they nor the keywords next to them are certain.
            only = node.only_alternative(union)
            return ANY if only is None else _nullable(_read(only, depth + 1), node.has_null)
    # Authors wrap a `$ref` like this to describe the field further. Several parts are not merged, but left unchecked.
    if "allOf" in node.keywords and "type" not in node.keywords and "properties" not in node.keywords:
        parts = node.keywords["allOf"]
        return _read(node.below(parts[0]), depth + 1) if isinstance(parts, list) and len(parts) == 1 else ANY
    return _read_plain(node, depth)


def _read_plain(node: SchemaNode, depth: int) -> DataShape:
    types = _types_of(node)
    nullable = "null" in types
    named = [name for name in types if name != "null"]
    if len(named) != 1:
        return ANY
    if named[0] in _SCALARS:
        return DataShape(_SCALARS[named[0]], nullable)
    if named[0] == "array":
        return DataShape("list", nullable, items=_read(node.below(node.keywords.get("items")), depth + 1))
    if named[0] == "object":
        return _nullable(_read_object(node, depth), nullable)
    return ANY


def _read_object(node: SchemaNode, depth: int) -> DataShape:
    if node.fields:
        # Also if further names are allowed: a name that a policy reads without a declaration is treated as a typo.
        fields = {name: _read(part, depth + 1) for name, part in node.fields.items()}
        return DataShape("object", fields=fields, required=node.required)
    if node.values.written is False:
        return DataShape("object")
    return DataShape("map", items=_read(node.values, depth + 1))


def _types_of(node: SchemaNode) -> list[str]:
    if node.types:
        return list(node.types)
    if "properties" in node.keywords:
        return ["object"]
    written = node.keywords
    values = written["enum"] if "enum" in written else [written["const"]] if "const" in written else []
    return sorted({_type_name(value) for value in values}) if isinstance(values, list) else []


def _type_name(value: Any) -> str:
    names: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    return names.get(type(value), "unknown")


def _nullable(shape: DataShape, nullable: bool) -> DataShape:
    if not nullable:
        return shape
    return DataShape(shape.kind, True, shape.fields, shape.required, shape.items)


def pin_numbers(value: Any, shape: DataShape | None) -> Any:
    """Convert numbers to float or int by their shape, so that `49` and `49.0` are equal.

    Raises `OverflowError` for an integer too large for a float.
    """
    # A boolean is an int in Python, and must not become 1.0.
    if isinstance(value, bool) or value is None or shape is None:
        return value
    if shape.kind == "number" and isinstance(value, int):
        return float(value)
    if shape.kind == "int" and isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list | tuple):
        return [pin_numbers(item, shape.items) for item in value]
    if isinstance(value, Mapping):
        inner = shape.items if shape.kind == "map" else None
        return {name: pin_numbers(item, shape.fields.get(name, inner)) for name, item in value.items()}
    return value
