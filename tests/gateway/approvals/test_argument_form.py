import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.contracts.errors import Refused
from signoff.formats.json_schema import compile_schema
from signoff.gateway.approvals.argument_form import ArgumentField, fields_of, is_plain
from signoff.gateway.approvals.argument_parser import ParsedArguments, read_fields
from signoff.gateway.approvals.secret_masks import masked_args, unmasked_args
from signoff.languages.remarks import english

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "cost": {"type": "number", "minimum": 0, "maximum": 500},
        "seats": {"type": "integer"},
        "to": {"type": "string", "title": "Payee", "description": "Who is paid."},
        "class": {"enum": ["economy", "business", 1]},
        "refundable": {"type": "boolean"},
        "memo": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "no": {"type": "integer"}},
            "required": ["street"],
        },
        "legs": {"type": "array", "items": {"type": "object"}},
        "pin": {"type": "string", "writeOnly": True},
        "any": {},
    },
    "required": ["cost", "to"],
    "additionalProperties": False,
}
ARGS: dict[str, Any] = {
    "cost": 420.0,
    "seats": 2,
    "to": "Ana",
    "class": "economy",
    "refundable": False,
    "tags": ["a", "b"],
    "address": {"street": "Rua 1", "no": 5},
    "legs": [{"from": "LIS"}],
    "pin": "4711",
}


def fields(args: dict[str, Any] = ARGS, schema: dict[str, Any] = SCHEMA) -> dict[str, ArgumentField]:
    return {field.dotted: field for field in fields_of(args, schema, ("pin",))}


def sent(args: dict[str, Any] = ARGS, schema: dict[str, Any] = SCHEMA, **changed: str) -> ParsedArguments:
    """`__` in a name means `/`."""
    found = fields_of(args, schema, ("pin",))
    form = {field.key: field.shown.replace("\n", "\r\n") for field in found}
    form |= {f"args/{name.replace('__', '/')}": value for name, value in changed.items()}
    return read_fields(found, form, args, compile_schema(schema), ("pin",))


def problems(typed: ParsedArguments) -> dict[str, str]:
    return {field.dotted: english(field.problem) for field in typed.fields if field.problem}


def test_every_argument_gets_the_form_field_of_its_type() -> None:
    kinds = {name: field.kind for name, field in fields().items()}
    assert kinds == {
        "cost": "number",
        "seats": "integer",
        "to": "text",
        "class": "choice",
        "refundable": "choice",
        "memo": "text",
        "tags": "lines",
        "address.street": "text",
        "address.no": "integer",
        "legs": "json",
        "pin": "text",
        "any": "json",
    }


def test_form_field_has_label_help_limits_and_choices() -> None:
    found = fields()
    assert (found["to"].label, found["to"].help, found["to"].needed) == ("Payee", "Who is paid.", True)
    assert (found["cost"].least, found["cost"].most, found["cost"].shown) == (0, 500, "420")
    assert (found["address.street"].label, found["seats"].needed) == ("Address / Street", False)
    assert [choice.value for choice in found["class"].choices] == ['"economy"', '"business"', "1"]


def test_untouched_form_keeps_the_arguments_exactly() -> None:
    typed = sent()
    assert (typed.good, json.dumps(typed.args)) == (True, json.dumps(ARGS))
    assert "4711" not in repr([field.shown for field in typed.fields])


def test_form_without_fields_changes_nothing() -> None:
    assert read_fields(fields_of(ARGS, SCHEMA), {}, ARGS, None).args == ARGS


@table(
    ("changed", "path", "value"),
    ({"cost": "380"}, ("cost",), 380),
    ({"cost": " 12.50 "}, ("cost",), 12.5),
    ({"seats": "3"}, ("seats",), 3),
    ({"to": "007"}, ("to",), "007"),
    ({"to": ""}, ("to",), ""),
    ({"class": "1"}, ("class",), 1),
    ({"refundable": "true"}, ("refundable",), True),
    ({"memo": "x\r\ny"}, ("memo",), "x\ny"),
    ({"tags": "a\r\n\r\n c "}, ("tags",), ["a", "c"]),
    ({"tags": ""}, ("tags",), []),
    ({"address__no": "7"}, ("address", "no"), 7),
    ({"legs": '[{"from": "OPO"}]'}, ("legs",), [{"from": "OPO"}]),
    ({"pin": "1234"}, ("pin",), "1234"),
    ({"any": "[1, null]"}, ("any",), [1, None]),
)
def test_typed_value_has_the_type_of_the_schema(changed: dict[str, str], path: tuple[str, ...], value: Any) -> None:
    typed = sent(**changed)
    assert typed.good, typed
    assert typed.args is not None
    found: Any = typed.args
    for part in path:
        found = found[part]
    assert (found, type(found)) == (value, type(value))
    assert {name: item for name, item in typed.args.items() if name != path[0]} == {
        name: item for name, item in ARGS.items() if name != path[0]
    }


@table("name", "seats", "class", "refundable", "address__no")
def test_emptied_optional_field_is_left_out(name: str) -> None:
    typed = sent(**{name: ""})
    assert typed.good
    found: Any = typed.args
    *above, last = name.split("__")
    for part in above:
        found = found[part]
    assert last not in found


@table(
    ("changed", "where", "expected"),
    ({"cost": "four"}, "cost", "must be a number, such as 380 or 12.5"),
    ({"cost": "12,50"}, "cost", "must be a number, such as 380 or 12.5"),
    ({"cost": "NaN"}, "cost", "must be a number, such as 380 or 12.5"),
    ({"cost": "501"}, "cost", "must be at most 500"),
    ({"cost": ""}, "cost", "is required"),
    ({"seats": "2.5"}, "seats", "must be a whole number, such as 380"),
    ({"class": '"first"'}, "class", "must be one of the choices"),
    ({"tags": "a\nb\nc\nd"}, "tags", "must have at most 3 items"),
    ({"legs": "[1]"}, "legs", "`[0]` must be of type object"),
    ({"legs": "[1"}, "legs", "is not JSON: expecting ',' delimiter in line 1"),
    ({"legs": "[NaN]"}, "legs", "holds NaN, which is not a JSON number"),
    ({"legs": "[" * 100_000}, "legs", "is nested too deeply"),
)
def test_invalid_value_shows_its_problem_at_the_field(changed: dict[str, str], where: str, expected: str) -> None:
    typed = sent(**changed)
    assert not typed.good
    assert problems(typed) == {where: expected}
    (value,) = changed.values()
    assert next(field.shown for field in typed.fields if field.problem) == value


def test_nested_object_is_created_only_for_a_value() -> None:
    args = {"cost": 1, "to": "Ana"}
    assert sent(args).args == args
    typed = sent(args, address__no="5")
    assert problems(typed) == {"address.street": "is required"}
    assert sent(args, address__no="5", address__street="Rua").args == {**args, "address": {"no": 5, "street": "Rua"}}


def test_text_that_a_form_would_change_is_edited_as_json() -> None:
    for text in ("a\rb", "Ana\u202esousa", "a\u200bb", "a\x00b"):
        field = fields({**ARGS, "to": text})["to"]
        assert (field.kind, json.loads(field.shown)) == ("json", text)
        assert field.shown.isascii()
    assert fields({**ARGS, "to": "two\nlines, ümlaut"})["to"].kind == "text"


def test_too_many_fields_become_one_json_field() -> None:
    many = {f"a{number}": {"type": "string"} for number in range(61)}
    (field,) = fields_of({"a1": "x"}, {"type": "object", "properties": many})
    assert (field.path, json.loads(field.shown)) == ((), {"a1": "x"})
    (bare,) = fields_of({"a": 1, "pin": "4711"}, {"type": "object"}, ("pin",))
    assert json.loads(bare.shown) == {"a": 1, "pin": "hidden, 4 characters"}
    form = {"args": json.dumps({"a": 2, "pin": "hidden, 4 characters"})}
    typed = read_fields((bare,), form, {"a": 1, "pin": "4711"}, None, ("pin",))
    assert typed.args == {"a": 2, "pin": "4711"}
    assert problems(read_fields((bare,), {"args": "3"}, {"a": 1}, None)) == {"": "must be a JSON object"}


def test_argument_outside_the_schema_can_be_edited() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    found = fields_of({"a": "x", "b": [1]}, schema)
    assert [(field.dotted, field.kind) for field in found] == [("a", "text"), ("b", "json")]


def test_mask_keeps_the_hidden_value_and_never_replaces_it() -> None:
    args = {"pin": "4711", "cards": [{"no": "1111"}, {"no": "2222"}], "in": {"key": {"a": 1}}}
    secrets = ("pin", "cards.no", "in.key")
    masked = masked_args(args, secrets)
    assert "4711" not in json.dumps(masked)
    assert unmasked_args(masked, args, secrets) == args
    assert unmasked_args({**masked, "pin": "9"}, args, secrets)["pin"] == "9"
    moved = {**masked, "cards": masked["cards"][1:]}
    for wrong in (moved, {**masked, "pin": "hidden, 5 characters"}, {"cards": [], "pin": "hidden"}):
        with pytest.raises(Refused, match="type the value"):
            unmasked_args(wrong, args, secrets)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "cost": st.integers(0, 500) | st.floats(0, 500),
            "to": st.text(),
            "memo": st.none() | st.text(),
            "tags": st.lists(st.text(max_size=4), max_size=3),
            "any": _JSON,
            "pin": st.text(),
        },
    )
)
def test_any_arguments_survive_an_untouched_form(args: dict[str, Any]) -> None:
    typed = sent(args)
    if typed.args is None:
        assert any("hold" in english(each) for each in typed.problems)
        return
    assert json.dumps(typed.args) == json.dumps(args)
    assert not any(isinstance(value, float) and not math.isfinite(value) for value in typed.args.values())


@given(st.text())
def test_plain_text_survives_a_browser(text: str) -> None:
    if is_plain(text):
        assert text.replace("\n", "\r\n").replace("\r\n", "\n") == text
        assert "\x00" not in text
