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
    return {"type": "object", "properties": {"x": schema}}


@table(
    ("schema", "args"),
    (of({"type": "string", "pattern": SLOW}), {"x": TEXT}),
    ({"type": "object", "patternProperties": {SLOW: {"type": "null"}}, "additionalProperties": False}, {TEXT: 1}),
    ({"type": "object", "propertyNames": {"pattern": SLOW}}, {TEXT: 1}),
    (of({"$ref": "#/$defs/a"}) | {"$defs": {"a": {"$schema": DIALECT, "pattern": SLOW}}}, {"x": TEXT}),
    (of({"$ref": "#"}) | {"$schema": DIALECT, "pattern": SLOW}, {"x": TEXT}),
)
def test_backtracking_pattern_is_matched_in_linear_time(schema: dict[str, Any], args: dict[str, Any]) -> None:
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
def test_pattern_without_a_linear_form_is_refused(schema: dict[str, Any], says: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        compile_schema(schema, tool_name="t")
    assert says in caught.value.message


def test_pattern_in_data_is_not_a_pattern() -> None:
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
def test_other_validation_matches_the_standard(args: dict[str, Any], pattern: str, others: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"pattern": "b"}},
        "patternProperties": {pattern: {"type": ["integer", "string"], "pattern": "1", "maximum": 1}},
        "additionalProperties": others,
    }
    assert validator_of(schema).is_valid(args) == Draft202012Validator(schema).is_valid(args)
