from typing import Any

from tables import table

from signoff.approvals.argument_rows import (
    default_leaves,
    find,
    format_of,
    humanise,
    is_secret,
    keys_from_name,
    leaf_line,
    leaves,
    step_from_key,
    value_line,
)
from signoff.formats.schema_node import SchemaNode

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "totalCost": {"type": "number", "title": "Totalcost"},
        "due": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "title": "Due"},
        "who": {"$ref": "#/$defs/Who"},
        "stops": {"type": "array", "items": {"$ref": "#/$defs/Who"}},
        "iban": {"type": ["null", "string"], "title": "Account to pay"},
    },
    "$defs": {
        "Who": {"type": "object", "title": "Who", "properties": {"e_mail": {"type": "string", "format": "email"}}}
    },
}


def flat(args: dict[str, Any], secrets: tuple[str, ...] = ()) -> list[tuple[str, str, str]]:
    return [(leaf.name, leaf.label, format_of(leaf)) for leaf in leaves(args, SCHEMA, secrets)]


def test_labels_and_formats_come_from_the_schema() -> None:
    args = {"totalCost": 1, "due": "2027-01-01", "who": {"e_mail": "a@b"}, "iban": "PT50", "stops": [{"e_mail": "c@d"}]}
    assert flat(args) == [
        ("totalCost", "Total cost", "number"),
        ("due", "Due", "date"),
        ("who.e_mail", "Who / E mail", "email"),
        ("iban", "Account to pay", "string"),
        ("stops.0.e_mail", "Stops 1 / E mail", "email"),
    ]


@table(
    ("value", "kind"),
    ("x", "string"),
    (1, "number"),
    (True, "boolean"),
    (None, "null"),
    ([], "array"),
    ({}, "object"),
)
def test_value_determines_its_type_without_a_schema(value: Any, kind: str) -> None:
    assert flat({"extra": value}) == [("extra", "Extra", kind)]


def test_list_is_one_row_only_if_its_items_are_unambiguous() -> None:
    assert [leaf.name for leaf in leaves({"to": ["a", "b"]}, {}, ())] == ["to"]
    assert [leaf.name for leaf in leaves({"to": ["a, b"]}, {}, ())] == ["to.0"]
    assert [leaf.name for leaf in leaves({"to": ["a" * 119, "evil"]}, {}, ())] == ["to.0", "to.1"]
    assert [leaf.name for leaf in leaves({"to": [["a"], []]}, {}, ())] == ["to.0", "to.1"]
    assert value_line(["a", 1, None], 50).text == "a, 1, ⟦none⟧"


def test_secret_value_is_not_split_into_rows() -> None:
    args = {"card": {"no": "4111"}, "logins": [{"pin": 1, "user": "ana"}]}
    found = {leaf.name: leaf.secret for leaf in leaves(args, {}, ("card", "logins.pin"))}
    assert found == {"card": True, "logins.0.pin": True, "logins.0.user": False}


@table(
    ("name", "secret"),
    ("card", True),
    ("card.no", True),
    ("cards", False),
    ("logins.0.pin", True),
    ("logins.pin", True),
    ("pin", False),
)
def test_nested_name_in_a_secret_is_secret(name: str, secret: bool) -> None:
    assert is_secret(name, {"card", "logins.pin"}) is secret


@table(
    ("name", "value"),
    ("a", {"b": [{"c": 1}]}),
    ("a.b.0.c", 1),
    ("a.b.1.c", None),
    ("a.x", None),
    ("x.y", None),
    ('"x.y"', 2),
    ("a.b.0.c.d", None),
)
def test_dotted_name_finds_a_nested_value(name: str, value: Any) -> None:
    assert find({"a": {"b": [{"c": 1}]}, "x.y": 2}, name, None) == value


@table(
    ("name", "words"),
    ("totalCost", "Total cost"),
    ("total_cost", "Total cost"),
    ("IBAN", "IBAN"),
    ("user-id", "User id"),
    ("x", "X"),
    ("a_b", "A b"),
    ("X", "X"),
    ("toX", "To x"),
    ("toEU", "To EU"),
    ("XTo", "Xto"),
    ("AB_c", "AB c"),
)
def test_argument_name_is_converted_to_words(name: str, words: str) -> None:
    assert humanise(name) == words


@table(
    "schema",
    {"$ref": "#/$defs/A"},
    {"$ref": "#/no"},
    {"$ref": 3},
    {"anyOf": 3},
    None,
    [],
    "x",
    {"$ref": "http://a/b"},
)
def test_unresolvable_schema_is_empty(schema: Any) -> None:
    assert SchemaNode(schema, {"$defs": {"A": {"$ref": "#/$defs/A"}}}).resolve().keywords == {}


def test_prefix_items_take_precedence_over_items() -> None:
    who: dict[str, Any] = {"type": "object", "properties": {"a": {"format": "date"}}}
    other: dict[str, Any] = {"type": "object", "properties": {"a": {"format": "email"}}}
    schema = {"properties": {"to": {"type": "array", "prefixItems": [who], "items": other}}}
    found = [(leaf.name, format_of(leaf)) for leaf in leaves({"to": [{"a": "x"}, {"a": "y"}]}, schema, ())]
    assert found == [("to.0.a", "date"), ("to.1.a", "email")]


@table(("name", "pointer"), ("a/b", "a~1b"), ("a~b", "a~0b"), ("a~1b", "a~01b"))
def test_references_are_json_pointers(name: str, pointer: str) -> None:
    node = SchemaNode({"$ref": f"#/$defs/{pointer}"}, {"$defs": {name: {"type": "string"}}})
    assert node.resolve().keywords == {"type": "string"}


@table(
    ("items", "one_row"),
    (["a" * 59, "b" * 59], True),
    (["a" * 59, "b" * 60], False),
    ([""] * 13, True),
    ([""] * 14, False),
)
def test_joined_row_has_at_most_120_characters(items: list[str], one_row: bool) -> None:
    assert len(list(leaves({"to": items}, {}, ()))) == (1 if one_row else len(items))


def test_very_long_name_is_truncated_before_conversion() -> None:
    assert humanise("a" * 999) == "A" + "a" * 159


@table("key", "$ref", "anyOf", "oneOf", "allOf")
def test_every_kind_of_schema_reference_is_followed(key: str) -> None:
    target = "#/$defs/A" if key == "$ref" else [{"type": "integer", "title": "A"}, {"type": "null"}]
    root = {"$defs": {"A": {"type": "integer", "title": "A"}}}
    assert SchemaNode({key: target, "title": "B"}, root).resolve().keywords == {"type": "integer", "title": "B"}


@table(
    ("schema", "kind"),
    ({"type": "integer"}, "integer"),
    ({"type": ["null", "integer"]}, "integer"),
    ({"type": ["null"]}, "number"),
    ({"type": []}, "number"),
    ({"type": "integer", "format": "int32"}, "int32"),
    ({"type": "integer", "format": ""}, "integer"),
    ({"type": 7}, "number"),
)
def test_format_comes_from_the_schema_before_the_value(schema: dict[str, Any], kind: str) -> None:
    (leaf,) = leaves({"a": 1}, {"properties": {"a": schema}}, ())
    assert format_of(leaf) == kind


def test_unlisted_names_use_the_additional_properties_schema() -> None:
    schema = {"properties": {"a": {"format": "date"}}, "additionalProperties": {"format": "email"}}
    assert [format_of(leaf) for leaf in leaves({"a": "x", "b": "y"}, schema, ())] == ["date", "email"]


@table(("title", "label"), ("Total Cost", "Total cost"), ("Total cost!", "Total cost!"), (" ", "Total cost"))
def test_title_generated_by_a_library_is_ignored(title: str, label: str) -> None:
    (leaf,) = leaves({"total_cost": 1}, {"properties": {"total_cost": {"title": title}}}, ())
    assert leaf.label == label


def test_label_of_many_steps_keeps_its_end() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = {"abc": deep}
    (leaf,) = leaves(deep, {}, ())
    assert leaf.label == (" / ".join(["Abc"] * 200))[-320:]


def test_every_value_has_a_unique_name_that_finds_it() -> None:
    args: dict[str, Any] = {
        "a": {"b": 1, "": 2, "0": 3, "b.c": 4},
        "a.b": 5,
        '"a.b"': 6,
        '"a': 7,
        "": {"": 8},
        "l": [{"x": 9}],
        "l.0.x": 10,
        "l.0": {"x": 11},
        "back\\slash.": 12,
        "0": 13,
    }
    found = [(leaf.name, leaf.value) for leaf in leaves(args, {}, ())]
    assert len({name for name, _ in found}) == len(found) == 13
    assert all(find(args, name, None) == value for name, value in found)


@table(
    ("key", "step"),
    ("a", "a"),
    ("é", "é"),
    ("", '""'),
    ("7", '"7"'),
    ("é.b", '"é.b"'),
    ('"a"', r'"\"a\""'),
    ('a"b', r'"a\"b"'),
)
def test_quoted_key_is_read_as_that_key_only(key: str, step: str) -> None:
    assert step_from_key(key) == step
    assert keys_from_name(step) == [key]
    assert keys_from_name(f"x.{step}.y") == ["x", key, "y"]


def test_trailing_dot_names_the_empty_key() -> None:
    assert keys_from_name("a.") == ["a", ""]
    assert find({"a": {"": 1}}, "a.", None) == 1
    assert find({"a": 1}, "", None) is None


def test_value_outside_the_schema_is_undeclared() -> None:
    inner = {"type": "object", "properties": {"b": {}}}
    typed = {"properties": {"x": {}}, "additionalProperties": {"type": "string"}}
    schema = {"properties": {"a": inner, "m": {"type": "object"}, "t": typed}}
    args = {"a": {"b": 1, "c": 2}, "m": {"k": 3}, "t": {"y": "4"}, "a.b": 5, "z": {"w": 6}}
    result = {leaf.name: leaf.declared for leaf in leaves(args, schema, ())}
    assert result == {"a.b": True, "a.c": False, "m.k": True, "t.y": True, '"a.b"': False, "z.w": False}


def test_items_of_an_undeclared_list_are_undeclared() -> None:
    schema = {"properties": {"a": {}}}
    args = {"a": ["x, y"], "u": ["x, y", {"a": 1}]}
    result = {leaf.name: leaf.declared for leaf in leaves(args, schema, ())}
    assert result == {"a.0": True, "u.0": False, "u.1.a": False}


def test_one_item_of_a_list_may_be_secret() -> None:
    args = {"logins": [{"pin": 1}, {"pin": 2}], "keys": ["a, b", "c, d"], "pin": 3}
    result = {leaf.name: leaf.secret for leaf in leaves(args, {}, ("logins.0.pin", "keys.1", "pin"))}
    assert result == {"logins.0.pin": True, "logins.1.pin": False, "keys.0": False, "keys.1": True, "pin": True}


def test_nested_value_has_its_schemas_title() -> None:
    schema = {"properties": {"who": {"title": "Payee", "properties": {"iban": {"title": "Account to pay"}}}}}
    (leaf,) = leaves({"who": {"iban": "PT50"}}, schema, ())
    assert leaf.label == "Payee / Account to pay"


@table(
    "field",
    {"type": "string", "default": "EUR"},
    {"$ref": "#/$defs/Currency"},
    {"$ref": "#/$defs/Plain", "default": "EUR"},
)
def test_default_is_in_the_field_or_its_reference(field: dict[str, Any]) -> None:
    referred = {"Currency": {"type": "string", "default": "EUR"}, "Plain": {"type": "string", "default": "USD"}}
    schema = {"properties": {"currency": field, "amount": {"type": "number"}}, "$defs": referred}
    assert [(leaf.name, leaf.value) for leaf in default_leaves({"amount": 1}, schema, ())] == [("currency", "EUR")]


@table(
    ("schema", "value", "shown"),
    ({"type": "string"}, "5", "5"),
    ({"type": ["string", "number"]}, "5", '"5"'),
    ({"const": "5"}, "5", "5"),
    ({"enum": ["5", "6"]}, "5", "5"),
    ({"enum": ["5", 5]}, "5", '"5"'),
    ({"type": "array", "items": {"type": "string"}}, ["5", "a"], "5, a"),
    ({"type": "array"}, ["5", "a"], '"5", a'),
    ({"type": "array", "items": {"type": ["string", "number"]}}, ["5", 5], '"5", 5'),
)
def test_text_is_quoted_if_its_schema_allows_other_types(schema: dict[str, Any], value: Any, shown: str) -> None:
    (leaf,) = leaves({"a": value}, {"properties": {"a": schema}}, ())
    assert leaf_line(leaf, 50).text == shown


def test_list_that_fits_its_row_only_without_quotes_shows_each_item() -> None:
    many = ["5"] * 40
    found = list(leaves({"to": many}, {}, ()))
    assert [leaf.name for leaf in found] == [f"to.{number}" for number in range(40)]
    assert {leaf_line(leaf, 500).text for leaf in found} == {'"5"'}
    short = list(leaves({"to": ["5"] * 24}, {}, ()))
    assert [leaf_line(leaf, 500).text for leaf in short] == [", ".join(['"5"'] * 24)]


def test_truncated_text_is_not_quoted() -> None:
    line = value_line('"' + "x" * 60, 20, quotes=True)
    assert (line.text, line.cut) == ('"' + "x" * 18 + "…", True)
