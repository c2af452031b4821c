from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.contracts.errors import RegistrationError
from signoff.formats.json_schema import CompiledSchema, compile_schema
from signoff.languages.remarks import english

SECRET = "hunter2-correct-horse"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 3, "maximum": 9},
        "word": {"type": "string", "maxLength": 4, "pattern": "^[a-z]+$"},
        "kind": {"enum": ["a", "b"]},
        "maybe": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
        "only": {"const": 1},
    },
    "$defs": {"item": {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}},
    "additionalProperties": False,
}


def told(schema: CompiledSchema, args: Any) -> list[tuple[str, str]]:
    return [(path, english(message)) for path, message in schema.check(args)]


@pytest.mark.row("B05")
@table(
    ("args", "path", "message"),
    ({"n": "x"}, "n", "must be of type integer"),
    ({"n": True}, "n", "must be of type integer"),
    ({"n": 2}, "n", "must be at least 3"),
    ({"word": "UP"}, "word", "must match the pattern `^[a-z]+$`"),
    ({"word": "abcde"}, "word", "must have at most 4 characters"),
    ({"kind": "c"}, "kind", "must be one of `a`, `b`"),
    ({"maybe": "x"}, "maybe", "must be of type number or null"),
    ({"items": [{"price": 1}, {}]}, "items[1].price", "is required"),
    ({"items": [{"price": "1"}]}, "items[0].price", "must be of type number"),
    ({"only": 2}, "only", "must be `1`"),
    ({"wrod": 1}, "wrod", "is not an argument (did you mean `word`?)"),
    ([], "", "must be of type object"),
)
def test_problem_names_the_path_and_what_is_expected(args: Any, path: str, message: str) -> None:
    assert (path, message) in told(compile_schema(SCHEMA), args)


@pytest.mark.row("B05")
def test_valid_arguments_have_no_problem() -> None:
    assert compile_schema(SCHEMA).check({"n": 5, "word": "abc", "maybe": None, "items": [{"price": 1.5}]}) == []


def test_every_missing_argument_is_reported_once() -> None:
    schema = compile_schema({"type": "object", "required": ["a", "aa"], "properties": {}})
    assert sorted(told(schema, {})) == [("a", "is required"), ("aa", "is required")]


@given(st.sampled_from(sorted(SCHEMA["properties"])), st.booleans())
def test_messages_never_repeat_a_value(name: str, nested: bool) -> None:
    args = {name: [{"price": SECRET}, SECRET] if nested else SECRET}
    problems = compile_schema(SCHEMA).check(args)
    assert problems
    assert all(SECRET not in path + english(message) for path, message in problems)


@table(
    ("schema", "words"),
    ({"type": "string"}, "`type: object`"),
    ({}, "`type: object`"),
    ("text", "must be a JSON Schema object"),
    ({"type": "object", "properties": {"a": {"type": "strin"}}}, "at `properties.a.type`"),
    ({"type": "object", "properties": {"a": {"$ref": "https://example.org/a.json"}}}, "remote `$ref`"),
    ({"type": "object", "properties": {"a": {"$ref": "other.json#/a"}}}, "remote `$ref`"),
    ({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}}, "leads nowhere"),
    ({"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"}, "dialect"),
)
def test_unusable_schema_is_refused_at_build(schema: Any, words: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        compile_schema(schema, tool_name="t")
    assert words in caught.value.message
    assert caught.value.context["field"] == "input_schema"


def test_endless_reference_makes_data_invalid() -> None:
    schema = compile_schema({"type": "object", "allOf": [{"$ref": "#"}]})
    assert told(schema, {}) == [("", "cannot be checked against the schema")]


def test_data_that_looks_like_a_reference_is_data() -> None:
    value = {"$ref": "https://example.org/x"}
    schema = compile_schema({"type": "object", "properties": {"a": {"default": value}, "b": {"enum": [value]}}})
    assert schema.check({"b": value}) == []


def test_every_whole_number_of_cents_is_a_multiple_of_one_cent() -> None:
    schema = compile_schema({"type": "object", "properties": {"amount": {"type": "number", "multipleOf": 0.01}}})
    assert [cents for cents in range(1, 10_001) if schema.check({"amount": cents / 100})] == []
    problem = [("amount", "must be a multiple of 0.01")]
    assert [told(schema, {"amount": amount}) for amount in (1.005, 19.999, 1e-9)] == [problem] * 3
    assert [schema.check({"amount": amount}) for amount in (0, -4.02, 600.03, 10_001.12, 1e300)] == [[]] * 5


UNION = {
    "type": "object",
    "properties": {
        "to": {
            "oneOf": [
                {"title": "Card", "type": "object", "properties": {"kind": {"const": "card"}}, "required": ["number"]},
                {
                    "type": "object",
                    "properties": {"kind": {"const": "bank"}, "iban": {"type": "string", "minLength": 5}},
                    "required": ["kind", "iban"],
                },
                {"type": "string", "minLength": 3},
            ]
        }
    },
}


@table(
    ("value", "words"),
    ({"kind": "card"}, "closest branch is `Card`: `number` is required"),
    ({"kind": "bank", "iban": "x"}, "closest branch is 2: `iban` must have at least 5 characters"),
    ("x", "closest branch is 3: must have at least 3 characters"),
)
def test_union_mismatch_names_the_nearest_branch(value: Any, words: str) -> None:
    assert told(compile_schema(UNION), {"to": value}) == [("to", f"does not meet `oneOf` of the schema; {words}")]


def test_data_matching_several_branches_of_one_of_is_reported() -> None:
    schema = {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
    [problem] = compile_schema(schema).check({"a": 1, "b": 2})
    words = "does not meet `oneOf` of the schema; it fits more than one branch, but must fit exactly one"
    assert english(problem.message) == words
