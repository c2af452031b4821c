"""The patterns of schemas: matched in time that grows with the text, or refused when the schema is read."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tables import table

from signoff.contracts.errors import RegistrationError
from signoff.formats.json_schema import DIALECT, compile_schema
from signoff.formats.linear_pattern import validator_of

SLOW = "^(a+)+$"
TEXT = "a" * 40 + "!"


def of(schema: dict[str, Any]) -> dict[str, Any]:
    """`schema` as that of an argument `x`."""
    return {"type": "object", "properties": {"x": schema}}


@table(
    ("schema", "args"),
    (of({"type": "string", "pattern": SLOW}), {"x": TEXT}),
    ({"type": "object", "patternProperties": {SLOW: {"type": "null"}}, "additionalProperties": False}, {TEXT: 1}),
    ({"type": "object", "propertyNames": {"pattern": SLOW}}, {TEXT: 1}),
    (of({"$ref": "#/$defs/a"}) | {"$defs": {"a": {"$schema": DIALECT, "pattern": SLOW}}}, {"x": TEXT}),
    (of({"$ref": "#"}) | {"$schema": DIALECT, "pattern": SLOW}, {"x": TEXT}),
)
def test_a_pattern_that_backtracks_does_not_hold_a_worker(schema: dict[str, Any], args: dict[str, Any]) -> None:
    began = time.process_time()
    problems = compile_schema(schema).check(args)
    assert time.process_time() - began < 1.0
    assert problems != []


@table(
    ("schema", "says"),
    (of({"pattern": "(?=a)b"}), "`input_schema` of tool `t` has the pattern `(?=a)b`"),
    (of({"items": {"anyOf": [{"pattern": r"(a)\1"}]}}), r"the pattern `(a)\1`"),
    ({"type": "object", "patternProperties": {"(?!a)": {}}}, "the pattern `(?!a)`"),
    ({"type": "object", "$defs": {"pattern": {"pattern": "(?<!a)b"}}}, "the pattern `(?<!a)b`"),
    (
        {"type": "object", "patternProperties": {"a": {}}, "unevaluatedProperties": False},
        "write `additionalProperties`",
    ),
)
def test_what_cannot_be_matched_so_is_refused(schema: dict[str, Any], says: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        compile_schema(schema, tool_name="t")
    assert says in caught.value.message


def test_data_are_no_patterns() -> None:
    value = {"pattern": "(?=a)", "$schema": "x"}
    schema = compile_schema(
        {"type": "object", "properties": {"pattern": {"const": value}, "$schema": {"type": "null"}}}
    )
    assert schema.check({"pattern": value, "$schema": None}) == []
    assert [problem.path for problem in schema.check({"pattern": {}, "$schema": 1})] == ["pattern", "$schema"]


NAMES = st.text("ab1", max_size=3)
OBJECTS = st.dictionaries(NAMES, st.integers(0, 2) | st.text("ab1", max_size=3), max_size=4)


@given(
    OBJECTS,
    st.sampled_from(["^a", "b$", "[0-9]", "a?"]),
    st.sampled_from([False, True, {"type": "string"}, {"pattern": "^a"}]),
)
def test_all_else_is_as_the_standard_has_it(args: dict[str, Any], pattern: str, others: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"pattern": "b"}},
        "patternProperties": {pattern: {"type": ["integer", "string"], "pattern": "1", "maximum": 1}},
        "additionalProperties": others,
    }
    assert validator_of(schema).is_valid(args) == Draft202012Validator(schema).is_valid(args)
