from typing import Any

from policy_samples import TOOL, context
from tables import table

from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.compiled_policy import compile_policy
from signoff.policy.first_engine import is_cel_name, typed_environment
from signoff.policy.schema_shapes import DataShape, read_schema

LEG = {"type": "object", "properties": {"n": {"type": "integer"}, "in": {"type": "string"}, "ok": {"type": "boolean"}}}
FIELDS: dict[str, Any] = {
    "number": {"type": "number"},
    "number0": {"type": ["number", "null"]},
    "int": {"type": "integer"},
    "int0": {"type": ["integer", "null"]},
    "text": {"type": "string"},
    "text0": {"type": ["string", "null"]},
    "flag": {"type": "boolean"},
    "flag0": {"type": ["boolean", "null"]},
    "odd": {},
    "map": {"type": "object"},
    "map0": {"type": ["object", "null"]},
    "leg": LEG,
    "leg0": {**LEG, "type": ["object", "null"]},
    "outer": {"type": "object", "properties": {"inner": {"type": "object", "properties": {"leg": LEG}}}},
    "empty": {"type": "object", "additionalProperties": False},
    "ints": {"type": "array", "items": {"type": "integer"}},
    "ints0": {"type": ["array", "null"], "items": {"type": "integer"}},
    "of0": {"type": "array", "items": {"type": ["integer", "null"]}},
    "texts": {"type": "array", "items": {"type": "string"}},
    "numbers": {"type": "array", "items": {"type": "number"}},
    "odds": {"type": "array"},
    "maps": {"type": "array", "items": {"type": "object"}},
    "legs": {"type": "array", "items": LEG},
    "grid": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    "my-text": {"type": "string"},
    "true": {"type": "string"},
    "last": {"type": "integer"},
}
VARIABLES = {
    "args": read_schema({"type": "object", "properties": FIELDS}),
    "ctx": DataShape("object", fields={"int": DataShape("string"), "leg": DataShape("int")}),
}


def type_of(text: str) -> str:
    try:
        return str(typed_environment(VARIABLES).compile(text).return_type().name())
    except Exception:
        return "error"


@table(
    ("name", "kind"),
    ("number", "DYN"),
    ("number0", "DYN"),
    ("int", "INT"),
    ("int0", "INT"),
    ("text", "STRING"),
    ("text0", "STRING"),
    ("flag", "BOOL"),
    ("flag0", "BOOL"),
    ("odd", "DYN"),
    ("map", "MAP<STRING, DYN>"),
    ("map0", "DYN"),
    ("ints", "LIST<INT>"),
    ("ints0", "DYN"),
    ("of0", "LIST<INT>"),
    ("texts", "LIST<STRING>"),
    ("numbers", "LIST<DYN>"),
    ("odds", "LIST<DYN>"),
    ("maps", "LIST<MAP<STRING, DYN>>"),
    ("grid", "DYN"),
    ("last", "INT"),
    ("missing", "error"),
    ("my_text", "error"),
)
def test_field_has_the_type_of_its_schema(name: str, kind: str) -> None:
    assert type_of(f"args.{name}") == kind


@table(
    ("name", "nullable"),
    *((name, False) for name in ("int", "text", "flag", "map", "ints", "of0")),
    *((f"{name}0", True) for name in ("number", "int", "text", "flag", "map", "leg", "ints")),
)
def test_only_nullable_fields_may_be_compared_with_null(name: str, nullable: bool) -> None:
    assert type_of(f"args.{name} == null") == ("BOOL" if nullable else "error")


@table("holder", "args.leg", "args.leg0", "args.outer.inner.leg", "args.legs[0]")
def test_fields_of_an_object_are_known_in_every_position(holder: str) -> None:
    assert type_of(f"{holder}.n") == "INT"
    assert type_of(f"{holder}.ok") == "BOOL"
    assert type_of(f"{holder}.m") == "error"
    assert type_of(f"{holder}.n.x") == "error"


@table(
    ("text", "kind"),
    ("args.empty.x", "error"),
    ("args.map.x", "DYN"),
    ("args.map['x']", "DYN"),
    ("args.map0.x.y", "DYN"),
    ("args.maps[0].x", "DYN"),
    ("args.of0[0] == null", "BOOL"),
    ("args.ints[0] == null", "error"),
    ("args.grid[0][0]", "DYN"),
    ("args.odd.x[0].y", "DYN"),
    ("args.outer.inner.zzz", "error"),
    ("args.legs.n", "error"),
    ("ctx.int", "STRING"),
    ("ctx.leg", "INT"),
    ("ctx.text", "error"),
    ("other.text", "error"),
    ("args.int == ctx.leg", "BOOL"),
    ("args.int == ctx.int", "error"),
    ("args.number < 1.5", "BOOL"),
    ("args.number < 1", "BOOL"),
    ("args.int < 1.5", "error"),
)
def test_each_variable_has_its_own_fields(text: str, kind: str) -> None:
    assert type_of(text) == kind


@table(
    ("name", "spoken"),
    ("a", True),
    ("Z", True),
    ("_", True),
    ("_a9", True),
    ("totalCost", True),
    ("total_cost", True),
    ("inner", True),
    ("nulls", True),
    ("True", True),
    ("in", False),
    ("true", False),
    ("false", False),
    ("null", False),
    ("", False),
    ("9a", False),
    ("a-b", False),
    ("a.b", False),
    ("a b", False),
    ("a\n", False),
    ("é", False),
    ("xé", False),
)
def test_cel_names_are_recognized(name: str, spoken: bool) -> None:
    assert is_cel_name(name) is spoken


@table(
    "names",
    ("a_b", "aB"),
    ("aB", "a_b"),
    ("f2", "x"),
    ("x", "f1"),
    ("a_b", "a__b", "aB", "AB", "ab"),
    ("name", "json_name"),
)
def test_similar_names_are_distinct_arguments(names: tuple[str, ...]) -> None:
    """Even if protocol buffers would map them to the same JSON name."""
    schema = {"type": "object", "properties": {name: {"type": "integer"} for name in names}, "required": list(names)}
    text = " && ".join(f"args.{name} == {number}" for number, name in enumerate(names))
    policy = compile_policy(ApprovalPolicy(auto_approve_if=text), tool=TOOL, input_schema=schema)
    right = {name: number for number, name in enumerate(names)}
    assert policy.judge(right, context()).verdict == "auto"
    for name in names:
        assert policy.judge({**right, name: 9}, context()).verdict == "ask"
