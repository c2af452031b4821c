from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012
from tables import table

from signoff.contracts.errors import RegistrationError
from signoff.formats.json_schema import compile_schema
from signoff.formats.schema_node import MAX_HOPS, SchemaNode, without_keyword
from signoff.formats.secret_arguments import secret_paths
from signoff.policy.schema_shapes import ANY, read_schema

DEEP = 100_000
NAMES = st.sampled_from(["a", "b", "a/b", "~", "~1", "%25", "%", "", "0", "1", "$defs", "anyOf"])


def nested(levels: int, key: str = "items") -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {key: schema}
    return schema


@given(
    st.recursive(
        st.booleans() | st.just({"type": "string"}),
        lambda inner: st.dictionaries(NAMES, inner, max_size=3) | st.lists(inner, max_size=3),
        max_leaves=12,
    ),
    st.lists(NAMES | st.sampled_from(["~01", "~00", "%20", "-1", "01", "9" * 9]), max_size=4),
)
def test_pointer_leads_to_the_same_place_as_in_the_reference_library(root: Any, parts: list[str]) -> None:
    reference = "#" + "".join(f"/{part}" for part in parts)
    registry: Registry[Any] = Registry().with_resource(
        "", Resource.from_contents(root, default_specification=DRAFT202012)
    )
    found = SchemaNode.of(root).target(reference)
    try:
        wanted = registry.resolver("").lookup(reference).contents
    except (Unresolvable, ValueError, TypeError, LookupError):
        # The reference library raises various errors for places outside every schema.
        return
    if found is None:
        assert any(part.startswith("-") or (part.isdecimal() and part != str(int(part))) for part in parts)
    else:
        assert found.written == wanted


def test_anchor_is_found_by_its_name() -> None:
    schema = {
        "properties": {"a": {"$ref": "#money"}},
        "$defs": {"x": {"items": {"$anchor": "money", "type": "number"}}},
    }
    node = SchemaNode.of(schema)
    found = node.target("#money")
    assert found is not None
    assert found.kind == "number"
    assert read_schema({"type": "object", **schema}).fields["a"].kind == "number"
    for reference in ("#no", "money", "https://a.example/b#money", "", 3, None, "#/properties/b", "#/properties/a/0"):
        assert node.target(reference) is None
    # An anchor in data does not count.
    assert SchemaNode.of({"const": {"$anchor": "x"}, "default": {"$anchor": "x"}}).target("#x") is None


@table(
    ("schema", "kind", "has_null"),
    ({"type": "string"}, "string", False),
    ({"type": ["null", "string"]}, "string", True),
    ({"type": ["integer", "string"]}, "", False),
    ({"type": "null"}, "", True),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "", True),
    ({"type": [3, "string"]}, "string", False),
    ({"type": 3}, "", False),
    (True, "", False),
    ("text", "", False),
)
def test_type_of_a_nullable_schema_is_the_other_one(schema: Any, kind: str, has_null: bool) -> None:
    node = SchemaNode.of(schema)
    assert (node.kind, node.has_null) == (kind, has_null)


def test_circular_references_end() -> None:
    circle = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    assert SchemaNode.of(circle).resolve().keywords == {}
    assert read_schema(circle) == ANY
    chain: dict[str, Any] = {"0": {"type": "string"}}
    chain |= {str(hop): {"$ref": f"#/$defs/{hop - 1}"} for hop in range(1, MAX_HOPS + 1)}
    assert SchemaNode({"$ref": f"#/$defs/{MAX_HOPS - 2}"}, {"$defs": chain}).resolve().kind == "string"
    assert SchemaNode({"$ref": f"#/$defs/{MAX_HOPS}"}, {"$defs": chain}).resolve().kind == ""


@pytest.mark.parametrize("key", ["items", "not", "additionalProperties", "strange"])
def test_schema_of_any_depth_is_walked(key: str) -> None:
    nodes = list(SchemaNode.of(nested(DEEP, key)).walk())
    assert len(nodes) == DEEP + 1
    assert nodes[-1].kind == "string"


def test_walk_visits_every_schema_in_order_and_no_data() -> None:
    schema = {
        "title": "top",
        "properties": {"const": {"title": "a"}, "$ref": {"title": "b"}},
        "anyOf": [{"title": "c"}, {"allOf": [{"title": "d"}]}],
        "const": {"title": "data"},
        "examples": [{"title": "data"}],
        "unheard": {"deep": {"title": "e"}},
        "$defs": {"enum": {"title": "f"}},
    }
    titles = [node.keywords["title"] for node in SchemaNode.of(schema).walk() if "title" in node.keywords]
    assert titles == ["top", "a", "b", "c", "d", "e", "f"]


@table("name", "const", "enum", "default", "examples")
def test_remote_reference_under_any_property_name_is_found(name: str) -> None:
    schema = {"type": "object", "properties": {name: {"$ref": "https://a.example/b"}}}
    with pytest.raises(RegistrationError, match=r"remote `\$ref`"):
        compile_schema(schema)
    kept = {"type": "object", "properties": {"a": {name: [{"$ref": "https://a.example/b"}]}}}
    assert compile_schema(kept).schema == kept


def test_unresolved_reference_counts_as_secret() -> None:
    schema = {"properties": {"a": {"$ref": "#nowhere"}, "b": {"type": "string"}}}
    assert secret_paths(schema) == {("a",)}
    anchored = {"properties": {"a": {"$ref": "#key"}}, "$defs": {"k": {"$anchor": "key", "writeOnly": True}}}
    assert secret_paths(anchored) == {("a",)}
    twice = {**anchored, "$defs": {"i": {"$anchor": "key"}, **anchored["$defs"]}}
    assert secret_paths(twice) == {("a",)}, "nobody knows which of the two is meant"


def test_references_are_resolved_from_the_root_only() -> None:
    """Below an `$id` a validator would resolve them from there, to another schema than cards and secrets use."""
    inner = {"$id": "https://a.example/b", "$defs": {"k": {"type": "string", "writeOnly": True}}}
    schema = {"type": "object", "properties": {"a": {**inner, "$ref": "#/$defs/k"}}, "$defs": {"k": {}}}
    with pytest.raises(RegistrationError, match=r"`\$id` within it"):
        compile_schema(schema)
    named = {"type": "object", "$id": "https://a.example/c", "properties": {"a": inner}}
    assert compile_schema(named).schema == named


def test_keyword_is_removed_from_every_schema_and_no_data() -> None:
    schema = {
        "$schema": "x",
        "properties": {"$schema": {"$schema": "x", "type": "string"}},
        "anyOf": [{"$schema": "x"}],
        "const": {"$schema": "x"},
    }
    assert without_keyword(schema, "$schema") == {
        "properties": {"$schema": {"type": "string"}},
        "anyOf": [{}],
        "const": {"$schema": "x"},
    }
