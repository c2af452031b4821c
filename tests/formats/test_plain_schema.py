from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from tables import table

from signoff.contracts.errors import RegistrationError
from signoff.formats.json_schema import _FITS, compile_schema, plainly_valid

WORDS = st.sampled_from(["string", "object", "strin", "", "#/$defs/a", "#/nowhere", "http://x y", "(", "a"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 3), st.sampled_from([-0.5, 0.0, 1.5, float("inf"), float("nan")]), WORDS
)
KEYWORDS = st.sampled_from([*sorted(_FITS), "pattern", "not", "minProperty", "multipleOf", "$id", "if"])


def values(schemas: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        SCALARS,
        st.lists(SCALARS, max_size=3),
        schemas,
        st.lists(schemas, max_size=2),
        st.dictionaries(WORDS, schemas, max_size=2),
    )


SCHEMAS = st.recursive(
    st.booleans() | st.dictionaries(KEYWORDS, SCALARS, max_size=2),
    lambda inner: st.dictionaries(KEYWORDS, values(inner), max_size=3),
    max_leaves=12,
)


def is_valid(schema: Any) -> bool:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        return False
    return True


@given(SCHEMAS)
def test_plainly_valid_schema_is_valid(schema: Any) -> None:
    assert is_valid(schema) or not plainly_valid(schema)


@pytest.mark.parametrize("keyword", sorted(_FITS))
@given(value=values(SCHEMAS))
def test_plain_keyword_value_is_never_invalid(keyword: str, value: Any) -> None:
    assert is_valid({keyword: value}) or not plainly_valid({keyword: value})


def test_usual_schemas_are_plainly_valid() -> None:
    usual = {
        "type": "object",
        "properties": {
            "to": {"type": "string", "description": "Who.", "minLength": 1},
            "sum": {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}], "default": None},
            "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
        },
        "required": ["to"],
        "additionalProperties": False,
        "$defs": {"Item": {"type": "object", "properties": {"id": {"type": ["integer", "string"]}}}},
    }
    assert plainly_valid(usual)
    assert not plainly_valid({**usual, "pattern": "("})


@table("schema", {"pattern": "("}, {"properties": {"a": {"type": "strin"}}}, {"required": ["a", "a"]})
def test_non_plain_schema_is_still_checked(schema: dict[str, Any]) -> None:
    with pytest.raises(RegistrationError, match=r"not valid JSON Schema|RE2 cannot read"):
        compile_schema({"type": "object", **schema}, tool_name="t")
