from typing import Any

from tables import table

from signoff.policy.expression import ErrorPlace, read_error
from signoff.policy.schema_shapes import DataShape, read_schema

FIELDS = {
    "type": "object",
    "properties": {
        "count": {"type": "integer"},
        "cost": {"type": "number"},
        "leg": {"type": "object", "properties": {"city": {"type": "string"}, "count": {"type": "integer"}}},
        "legs": {"type": "array", "items": {"type": "object", "properties": {"city": {"type": "string"}}}},
        "my-field": {"type": "string"},
    },
}
VARIABLES: dict[str, DataShape] = {
    "args": read_schema(FIELDS),
    "ctx": read_schema({"properties": {"tier": {"type": "string"}}}),
}


def summary(text: str, *reports: str, variables: Any = VARIABLES) -> tuple[str, int]:
    lines = "\n".join(f"ERROR: <input>:{report} [INVALID_ARGUMENT]" for report in reports)
    return read_error(f"INVALID_ARGUMENT: {lines}", ErrorPlace(text, variables))


@table(
    ("report", "sentence"),
    ("", "it cannot be read"),
    ("INVALID_ARGUMENT: ", "it cannot be read"),
    ("INVALID_ARGUMENT: something odd\nand more", "something odd"),
    ("x" * 201, "x" * 200),
)
def test_report_without_a_place_keeps_its_message(report: str, sentence: str) -> None:
    assert read_error(report, ErrorPlace("true", VARIABLES)) == (sentence, 0)


def test_column_counts_through_lines() -> None:
    assert summary("ab", "1:2: Odd thing") == ("odd thing", 2)
    assert summary("ab\ncd\nef", "3:1: Odd thing") == ("odd thing", 7)


@table(
    ("message", "sentence"),
    ("A" + "b" * 159, "a" + "b" * 159),
    ("A" + "b" * 160, "a" + "b" * 159),
    ("Short expecting this", "short expecting this"),
    ("Bad expecting {" + "x" * 160 + "} expecting more", "bad"),
)
def test_long_message_is_cut(message: str, sentence: str) -> None:
    assert summary("true", f"1:1: {message}") == (sentence, 1)


def test_error_with_a_known_remedy_comes_first() -> None:
    found = summary("args.cuont > x", "1:12: undeclared reference to 'x'", "1:5: undefined field 'cuont'")
    assert found == ("no field `args.cuont`; did you mean `args.count`?", 5)
    assert summary("a b", "1:1: One", "1:3: Two") == ("one", 1)


@table(
    ("text", "column", "name", "sentence"),
    ("args.cuont > 1", 5, "cuont", "no field `args.cuont`; did you mean `args.count`?"),
    ("args.leg.ctiy == ''", 9, "ctiy", "no field `args.leg.ctiy`; did you mean `args.leg.city`?"),
    ("args.legs[0].ctiy == ''", 13, "ctiy", "no field `args.legs[0].ctiy`; did you mean `args.legs[0].city`?"),
    ("ctx.zzz == ''", 4, "zzz", "no field `ctx.zzz`; declared are `tier`"),
    ("args.zzz == ''", 5, "zzz", "no field `args.zzz`; declared are `cost`, `count`, `leg`, `legs`, `my-field`"),
    ("has(args.cuont)", 4, "cuont", "no field `args.cuont`; did you mean `args.count`?"),
    (
        "args.leg.zz.zz == ''",
        12,
        "zz",
        "no field `args.leg.zz.zz`; declared are `city`, `cost`, `count`, `leg`, `legs`, `tier`",
    ),
    (
        "ctx.tire == '' && args.tire == ''",
        23,
        "tire",
        "no field `args.tire`; declared are `cost`, `count`, `leg`, `legs`, `my-field`",
    ),
    ("x[cuont]", 2, "cuont", "no field `cuont`; did you mean `count`?"),
)
def test_unknown_field_error_suggests_a_declared_one(text: str, column: int, name: str, sentence: str) -> None:
    assert summary(text, f"1:{column}: undefined field '{name}'") == (sentence, column)


def test_unknown_field_error_lists_at_most_twelve_fields() -> None:
    many = {"args": read_schema({"properties": {f"f{n:02}": {"type": "string"} for n in range(20)}})}
    listed = ", ".join(f"`f{n:02}`" for n in range(12))
    assert summary("args.zzz", "1:5: undefined field 'zzz'", variables=many)[0].endswith(f"declared are {listed}")
    none = {"args": DataShape("object")}
    assert (
        summary("args.zzz", "1:5: undefined field 'zzz'", variables=none)[0] == "no field `args.zzz`; declared are none"
    )


@table(
    ("name", "sentence"),
    ("size", "`size` does not take these arguments"),
    ("argz.count", "nothing is called `argz.count`; did you mean `args.count`?"),
    ("argz", "nothing is called `argz`; did you mean `args`?"),
    ("sise", "nothing is called `sise`; did you mean `size`?"),
    ("legs", "nothing is called `legs`; did you mean `args.legs`?"),
    ("xyzzy", "nothing is called `xyzzy`; there are `args`, `ctx`"),
)
def test_unknown_name_error_suggests_a_known_one(name: str, sentence: str) -> None:
    assert summary("true", f"1:1: undeclared reference to '{name}' (in container '')") == (sentence, 1)


@table(
    ("text", "operator", "types", "sentence"),
    ("args.count > 1.5", "_>_", "int, double", "`>` does not work on (int, double); write `double(args.count)`"),
    ("1 > 1.5", "_>_", "int, double", "`>` does not work on (int, double); write `double(n)`"),
    ("args.count + 'a'", "_+_", "int, string", "`+` does not work on (int, string)"),
    ("1 in 'a'", "@in", "int, string", "`in` does not work on (int, string); use `contains`"),
    ("1 in 2", "@in", "int, int", "`in` does not work on (int, int)"),
    (
        "args['x']",
        "_[_]",
        "policy.Object12, string",
        "`[ ]` does not work on (object, string); select the field with a point",
    ),
    ("1['x']", "_[_]", "int, string", "`[ ]` does not work on (int, string)"),
    ("args > args", "_>_", "policy.Object1, policy.Object1", "`>` does not work on (object, object)"),
)
def test_operator_error_names_types_and_conversion(text: str, operator: str, types: str, sentence: str) -> None:
    assert summary(text, f"1:1: found no matching overload for '{operator}' applied to '({types})'") == (sentence, 1)


@table("text", "args['my-field'] == ''", "args.my-field == ''", "args.`my-field` == ''")
def test_argument_name_outside_cel_syntax_has_its_own_error(text: str) -> None:
    sentence = "CEL cannot spell the argument `my-field`; rename it or leave it out of the policy"
    assert summary(text, "1:1: undeclared reference to 'field'") == (sentence, 1)
    assert summary("args.my-fields", "1:1: Odd") == ("odd", 1)
