from typing import Any

import pytest
from tables import table

from signoff.contracts.canonical_json import canonical_json
from signoff.contracts.errors import RegistrationError
from signoff.formats.json_schema import compile_schema
from signoff.registry.mcp.imported_tool import as_2020_12

DRAFT_07 = "http://json-schema.org/draft-07/schema#"


@table(
    ("old", "new"),
    ({"items": [{"type": "string"}, True]}, {"prefixItems": [{"type": "string"}, True]}),
    ({"items": [{}], "additionalItems": False}, {"prefixItems": [{}], "items": False}),
    ({"items": {"type": "string"}, "additionalItems": False}, {"items": {"type": "string"}}),
    (
        {"dependencies": {"a": ["b"], "c": {"required": ["d"]}}},
        {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"required": ["d"]}}},
    ),
    (
        {"properties": {"items": {"items": [{}]}}, "allOf": [{"not": {"items": [{}]}}]},
        {"properties": {"items": {"prefixItems": [{}]}}, "allOf": [{"not": {"prefixItems": [{}]}}]},
    ),
    # Data stays unchanged, even if it looks like a schema.
    ({"enum": [{"items": [1]}], "default": {"$schema": 1}}, {"enum": [{"items": [1]}], "default": {"$schema": 1}}),
    (
        {"definitions": {"a": {"items": [{}]}}, "$ref": "#/definitions/a"},
        {"definitions": {"a": {"prefixItems": [{}]}}, "$ref": "#/definitions/a"},
    ),
)
def test_changed_keywords_are_rewritten(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert as_2020_12({"$schema": DRAFT_07, "type": "object", **old}) == {"type": "object", **new}


def test_tuple_schema_keeps_its_meaning() -> None:
    old = {
        "$schema": DRAFT_07,
        "type": "object",
        "properties": {"pair": {"items": [{"type": "string"}, {"type": "number"}], "additionalItems": False}},
    }
    schema = compile_schema(as_2020_12(old))
    assert schema.check({"pair": ["a", 1]}) == []
    assert schema.check({"pair": [1, "a"]}) != []
    assert schema.check({"pair": ["a", 1, 2]}) != []


@table("dialect", "https://json-schema.org/draft/2020-12/schema", None)
def test_schema_in_the_current_dialect_stays_unchanged(dialect: str | None) -> None:
    schema = {"type": "object", "items": [{}]} | ({"$schema": dialect} if dialect else {})
    assert as_2020_12(schema) == schema


def test_unknown_dialect_is_refused() -> None:
    with pytest.raises(RegistrationError, match="declares the dialect"):
        compile_schema(as_2020_12({"$schema": "http://json-schema.org/draft-03/schema#", "type": "object"}))
    assert as_2020_12("no schema") == "no schema"


@table(
    ("schema", "taken", "refused"),
    ({"type": "integer", "minimum": 0, "maximum": 9223372036854775807}, [5, 2**53 - 1], [-1, 2**53]),
    ({"type": "integer", "minimum": -(2**63), "exclusiveMaximum": 2**64}, [-5, 5], [2**53, -(2**53)]),
    ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, [0.1], [0]),
    ({"type": "number", "maximum": 1, "exclusiveMaximum": False}, [1], [1.1]),
    ({"type": "string", "nullable": True}, ["x", None], [1]),
    ({"type": "string", "enum": ["x", None], "nullable": True}, ["x", None], ["y"]),
    ({"type": "string", "nullable": False}, ["x"], [None]),
    ({"$ref": "#/$defs/a", "nullable": True}, ["x", None], [1]),
    ({"type": "string", "pattern": "^[\\u0041-\\u005a]+$"}, ["AZ"], ["a"]),
)
def test_openapi_schema_forms_are_read(schema: dict[str, Any], taken: list[Any], refused: list[Any]) -> None:
    whole = as_2020_12({"type": "object", "properties": {"a": schema}, "$defs": {"a": {"type": "string"}}})
    compiled = compile_schema(whole)
    canonical_json(whole)
    assert [value for value in taken if compiled.check({"a": value})] == []
    assert [value for value in refused if not compiled.check({"a": value})] == []


def test_draft_4_schema_is_read() -> None:
    old = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "properties": {"a": {"minimum": 1}}}
    assert compile_schema(as_2020_12(old)).check({"a": 0}) != []
