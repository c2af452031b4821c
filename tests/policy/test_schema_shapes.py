import math
from collections.abc import Callable
from typing import Any

import pytest
from tables import table

from signoff.policy.schema_shapes import ANY, DataShape, pin_numbers, read_schema

INT, TEXT = DataShape("int"), DataShape("string")
LEG = {"type": "object", "properties": {"n": {"type": "integer"}, "t": {"type": "string"}}, "required": ["n"]}
LEG_FIELDS = {"n": INT, "t": TEXT}
NULL = {"type": "null"}


def leg(nullable: bool = False) -> DataShape:
    return DataShape("object", nullable, LEG_FIELDS, frozenset({"n"}))


@table(
    ("schema", "shape"),
    ({"type": "integer"}, INT),
    ({"type": "number"}, DataShape("number")),
    ({"type": "string"}, TEXT),
    ({"type": "boolean"}, DataShape("bool")),
    ({"type": ["integer"]}, INT),
    ({"type": ["integer", "null"]}, DataShape("int", True)),
    ({"type": ["null", "number"]}, DataShape("number", True)),
    ({"type": ["boolean", "null"]}, DataShape("bool", True)),
    ({"type": ["string", "integer"]}, ANY),
    ({"type": ["string", "integer", "null"]}, ANY),
    ({"type": "null"}, ANY),
    ({"type": []}, ANY),
    ({"type": "file"}, ANY),
    ({"type": 7}, ANY),
    ({}, ANY),
    (True, ANY),
    (None, ANY),
    ([LEG], ANY),
)
def test_single_type_is_a_shape(schema: Any, shape: DataShape) -> None:
    assert read_schema(schema) == shape


@table(
    ("schema", "shape"),
    ({"type": "array", "items": {"type": "string"}}, DataShape("list", items=TEXT)),
    ({"type": ["array", "null"], "items": {"type": "string"}}, DataShape("list", True, items=TEXT)),
    ({"type": "array", "items": LEG}, DataShape("list", items=leg())),
    ({"type": "array"}, DataShape("list", items=ANY)),
    ({"type": "array", "items": True}, DataShape("list", items=ANY)),
    (LEG, leg()),
    ({**LEG, "type": ["object", "null"]}, leg(nullable=True)),
    ({"properties": LEG["properties"]}, DataShape("object", fields=LEG_FIELDS)),
    ({**LEG, "additionalProperties": False}, leg()),
    ({**LEG, "additionalProperties": {"type": "boolean"}}, leg()),
    ({"type": "object", "properties": {"x": LEG}}, DataShape("object", fields={"x": leg()})),
    ({"type": "object", "additionalProperties": False}, DataShape("object")),
    ({"type": ["object", "null"], "additionalProperties": False}, DataShape("object", True)),
    ({"type": "object", "properties": {}, "additionalProperties": False}, DataShape("object")),
    ({"type": "object", "properties": {}}, DataShape("map", items=ANY)),
    ({"type": "object", "properties": ["n"]}, DataShape("map", items=ANY)),
    ({"type": "object"}, DataShape("map", items=ANY)),
    ({"type": ["object", "null"]}, DataShape("map", True, items=ANY)),
    ({"type": "object", "additionalProperties": True}, DataShape("map", items=ANY)),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, DataShape("map", items=INT)),
    ({"type": "object", "additionalProperties": LEG}, DataShape("map", items=leg())),
)
def test_lists_objects_and_maps_have_their_shape(schema: Any, shape: DataShape) -> None:
    assert read_schema(schema) == shape


@table(
    ("schema", "shape"),
    ({"enum": [True, False]}, DataShape("bool")),
    ({"enum": [1, 2]}, INT),
    ({"enum": [1.5]}, DataShape("number")),
    ({"enum": ["a", None]}, DataShape("string", True)),
    ({"const": True}, DataShape("bool")),
    ({"enum": [["a"]]}, ANY),
    ({"$ref": 7}, ANY),
    ({"enum": [1, 1.5]}, ANY),
    ({"enum": [None, 1]}, DataShape("int", True)),
    ({"enum": [True, 1]}, ANY),
    ({"enum": [{"a": 1}]}, ANY),
    ({"enum": []}, ANY),
    ({"enum": "abc"}, ANY),
    ({"enum": ["a"], "const": 1}, TEXT),
    ({"enum": ["a"], "type": "string"}, TEXT),
    ({"const": "a"}, TEXT),
    ({"const": 7}, INT),
    ({"const": 7.0}, DataShape("number")),
    ({"const": None}, ANY),
    ({"const": ["a"]}, ANY),
)
def test_enum_values_give_their_type(schema: Any, shape: DataShape) -> None:
    assert read_schema(schema) == shape


@table("union", "anyOf", "oneOf")
@table(
    ("options", "shape"),
    ([{"type": "string"}], TEXT),
    ([LEG, NULL], leg(nullable=True)),
    ([NULL, LEG], leg(nullable=True)),
    ([LEG], leg()),
    ([{"type": "array", "items": {"type": "string"}}, NULL], DataShape("list", True, items=TEXT)),
    ([{"type": ["integer", "null"]}], DataShape("int", True)),
    ([{"type": "string"}, {"type": "integer"}], ANY),
    ([{"type": "string"}, {"type": "integer"}, NULL], ANY),
    ([NULL], ANY),
    ([], ANY),
    (["string", NULL], DataShape("any", True)),
    ({"type": "string"}, ANY),
)
def test_union_with_null_is_a_nullable_shape(union: str, options: Any, shape: DataShape) -> None:
    assert read_schema({union: options}) == shape


@table(
    ("schema", "shape"),
    ({"allOf": [LEG]}, leg()),
    ({"allOf": [LEG, {"type": "object"}]}, ANY),
    ({"allOf": []}, ANY),
    ({"allOf": {"type": "string"}}, ANY),
    ({"allOf": {"one": {"type": "string"}}}, ANY),
    ({"allOf": [{"type": "string"}], "type": "integer"}, INT),
    ({"allOf": [{"type": "string"}], "properties": LEG["properties"]}, DataShape("object", fields=LEG_FIELDS)),
)
def test_all_of_one_schema_is_that_schema(schema: Any, shape: DataShape) -> None:
    assert read_schema(schema) == shape


@table(
    "holder",
    lambda ref: {"anyOf": [ref, NULL]},
    lambda ref: {"oneOf": [NULL, ref]},
    lambda ref: {"allOf": [ref]},
    lambda ref: {"type": "array", "items": ref},
    lambda ref: {"type": "object", "properties": {"x": ref}},
    lambda ref: {"type": "object", "additionalProperties": ref},
    lambda ref: {"$ref": "#/$defs/Again"},
)
def test_reference_is_resolved_in_every_position(holder: Callable[[Any], Any]) -> None:
    ref = {"$ref": "#/$defs/Leg"}
    defs = {"Leg": LEG, "Again": ref}
    referred = read_schema({"type": "object", "properties": {"here": holder(ref)}, "$defs": defs})
    written = read_schema({"type": "object", "properties": {"here": holder(LEG)}, "$defs": {**defs, "Again": LEG}})
    assert referred == written
    assert referred.fields["here"] != ANY


@table(
    ("reference", "shape"),
    ("#/$defs/deep/down", TEXT),
    ("#/$defs/~01", INT),
    ("#/$defs/a~1b~1c", DataShape("bool")),
    ("#/$defs/deep/none", ANY),
    ("#/$defs/deep/down/type/x", ANY),
    ("#/none/deep", ANY),
    ("/$defs/deep/down", ANY),
    ("#/$defs/list/0", TEXT),
    ("#/$defs/list/1", ANY),
    ("#$defs/deep/down", ANY),
    ("#Leg", TEXT),
    ("#Arm", ANY),
    ("", ANY),
)
def test_reference_is_a_pointer_within_the_schema(reference: str, shape: DataShape) -> None:
    defs = {
        "deep": {"down": {"type": "string"}},
        "~1": {"type": "integer"},
        "a/b/c": {"type": "boolean"},
        "list": [{"type": "string"}],
        "named": {"$anchor": "Leg", "type": "string"},
    }
    root = {"type": "object", "properties": {"x": {"$ref": reference}}, "deep": defs["deep"], "$defs": defs}
    assert read_schema(root).fields["x"] == shape


def test_recursive_schema_ends() -> None:
    shape: DataShape | None = read_schema({"type": "object", "properties": {"next": {"$ref": "#"}}})
    for _ in range(8):
        assert shape is not None
        assert shape.kind == "object"
        shape = shape.step("next")
    assert shape is not None
    assert shape.fields == {"next": ANY}
    assert read_schema({"$ref": "#"}) == ANY


@table(
    "wrap",
    lambda inner: {"type": "array", "items": inner},
    lambda inner: {"type": "object", "properties": {"[]": inner}},
    lambda inner: {"type": "object", "additionalProperties": inner},
    lambda inner: {"anyOf": [inner]},
    lambda inner: {"oneOf": [inner, NULL]},
    lambda inner: {"allOf": [inner]},
)
@table(("steps", "kind"), (16, "int"), (17, "any"))
def test_schema_is_read_sixteen_steps_deep(wrap: Callable[[Any], Any], steps: int, kind: str) -> None:
    schema: Any = {"type": "integer"}
    for _ in range(steps):
        schema = wrap(schema)
    assert innermost(read_schema(schema)).kind == kind


@table(("steps", "kind"), (16, "int"), (17, "any"))
def test_up_to_sixteen_references_are_followed(steps: int, kind: str) -> None:
    chain = {f"d{step}": {"$ref": f"#/$defs/d{step + 1}"} for step in range(1, steps)}
    schema = {"$ref": "#/$defs/d1", "$defs": {**chain, f"d{steps}": {"type": "integer"}}}
    assert read_schema(schema).kind == kind


def innermost(shape: DataShape) -> DataShape:
    while (inner := shape.items or shape.fields.get("[]")) is not None:
        shape = inner
    return shape


def test_step_leads_to_a_field_or_an_item() -> None:
    legs = DataShape("list", items=leg())
    assert legs.step("[]") == leg()
    assert leg().step("n") == INT
    assert leg().step("zzz") is None
    assert leg().step("[]") is None
    assert legs.step("n") is None


# Numbers


def typed(value: Any) -> Any:
    """Add the types of all scalars, because `49 == 49.0` in Python."""
    if isinstance(value, dict):
        return {name: typed(item) for name, item in value.items()}
    return [typed(item) for item in value] if isinstance(value, list) else (type(value), value)


NUMBER = DataShape("number")
NUMBERS = DataShape("object", fields={"n": NUMBER, "i": INT, "l": DataShape("list", items=NUMBER), "o": leg()})


@table(
    ("value", "shape", "pinned"),
    (49, NUMBER, 49.0),
    (49.5, NUMBER, 49.5),
    (49.0, INT, 49),
    (49.5, INT, 49.5),
    (math.inf, INT, math.inf),
    (49, INT, 49),
    (True, NUMBER, True),
    (False, INT, False),
    (None, NUMBER, None),
    ("49", NUMBER, "49"),
    (49, TEXT, 49),
    (49.0, TEXT, 49.0),
    (49, ANY, 49),
    (49, None, 49),
    ([1, 2.0], DataShape("list", items=NUMBER), [1.0, 2.0]),
    ((1.0, 2.5), DataShape("list", items=INT), [1, 2.5]),
    ([1, 2.0], ANY, [1, 2.0]),
    ({"a": 1, "b": {"c": 2}}, DataShape("map", items=NUMBER), {"a": 1.0, "b": {"c": 2}}),
    ({"a": 1}, DataShape("map", items=DataShape("map", items=NUMBER)), {"a": 1}),
    ({"a": {"b": 1}}, DataShape("map", items=DataShape("map", items=NUMBER)), {"a": {"b": 1.0}}),
    (
        {"n": 1, "i": 2.0, "l": [3], "o": {"n": 4.0, "zzz": 5}, "zzz": 6},
        NUMBERS,
        {"n": 1.0, "i": 2, "l": [3.0], "o": {"n": 4, "zzz": 5}, "zzz": 6},
    ),
    ({"zzz": 1}, DataShape("object", fields={"n": NUMBER}, items=NUMBER), {"zzz": 1}),
    ({"n": 1}, DataShape("map", fields={"n": INT}, items=NUMBER), {"n": 1}),
)
def test_numbers_are_converted_to_their_schema_type(value: Any, shape: DataShape | None, pinned: Any) -> None:
    assert typed(pin_numbers(value, shape)) == typed(pinned)


def test_integer_above_the_float_range_is_an_error() -> None:
    with pytest.raises(OverflowError):
        pin_numbers(10**400, NUMBER)
