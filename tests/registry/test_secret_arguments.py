from typing import Any

import pytest
from pydantic import BaseModel, SecretStr
from registry_kit import SCHEMA, a_tool, an_actor
from tables import table

from signoff.approvals.card import render_card
from signoff.approvals.redaction import hide
from signoff.contracts.errors import RegistrationError
from signoff.registry.catalog import build_catalog
from signoff.registry.function import tool
from signoff.registry.gates.pipeline import dry_run_text
from signoff.registry.results.dispatch_record import mask_arguments

SECRET = {"type": "string", "writeOnly": True}
PLAIN = {"type": "string"}


def secrets(properties: dict[str, Any], **more: Any) -> tuple[str, ...]:
    return a_tool(input_schema={"type": "object", "properties": properties, **more}).secret_arguments


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@table(
    ("pin", "named"),
    (SECRET, ("pin",)),
    ({"anyOf": [SECRET, {"type": "null"}]}, ("pin",)),
    ({"oneOf": [PLAIN, {"allOf": [{"minLength": 1}, SECRET]}]}, ("pin",)),
    ({"$ref": "#/$defs/code"}, ("pin",)),
    ({"$ref": "#the-code"}, ("pin",)),
    ({"type": "array", "items": {"$ref": "#/$defs/code"}}, ("pin",)),
    ({"type": "array", "prefixItems": [PLAIN, SECRET]}, ("pin",)),
    ({"if": PLAIN, "then": {"$ref": "#/$defs/code"}}, ("pin",)),
    ({"dependentSchemas": {"a": of(b=SECRET)}}, ("pin.b",)),
    ({"type": "object", "additionalProperties": SECRET}, ("pin",)),
    ({"type": "object", "patternProperties": {"^x": of(a=SECRET)}}, ("pin",)),
    (of(number=SECRET, name=PLAIN), ("pin.number",)),
    (of(a=of(b={"anyOf": [of(c=SECRET), {"type": "null"}]})), ("pin.a.b.c",)),
    ({"type": "array", "items": {"type": "array", "items": of(number=SECRET)}}, ("pin.number",)),
    ({**of(number=SECRET), "writeOnly": True}, ("pin",)),
    ({"$ref": "#/$defs/tree"}, ("pin.leaf", "pin.more")),
    ({"$ref": "#/$defs/plain_tree"}, ()),
    ({**PLAIN, "default": {"writeOnly": True}, "examples": [SECRET]}, ()),
    (of(writeOnly=PLAIN), ()),
    (True, ()),
)
def test_write_only_fields_are_found_in_every_form(pin: Any, named: tuple[str, ...]) -> None:
    tree = of(leaf={"$ref": "#/$defs/code"}, more={"type": "array", "items": {"$ref": "#/$defs/tree"}})
    plain_tree = of(leaf=PLAIN, more={"$ref": "#/$defs/plain_tree"})
    defs = {"code": {**SECRET, "$anchor": "the-code"}, "tree": tree, "plain_tree": plain_tree}
    assert secrets({"amount": {"type": "number"}, "pin": pin}, **{"$defs": defs}) == named


def test_secrets_named_only_in_alternatives_are_found() -> None:
    assert secrets({"a": PLAIN}, allOf=[{"properties": {"pin": SECRET}}]) == ("pin",)
    assert secrets({"pin": SECRET, "again": {"$ref": "#"}}) == ("again.again", "again.pin", "pin")


def test_many_or_deep_secrets_hide_the_whole_argument() -> None:
    wide = of(**{f"n{number}": SECRET for number in range(60)})
    assert len(secrets({"a": wide})) == 60
    assert secrets({"a": wide, "b": wide, "c": PLAIN}) == ("a", "b")
    deep: dict[str, Any] = SECRET
    for _ in range(12):
        deep = of(a=deep)
    assert secrets({"a": deep}) == (".".join("a" * 8),)


def test_lenient_validation_hides_whole_arguments() -> None:
    schema = of(card=of(number=SECRET), pin=PLAIN)
    loose = a_tool(input_schema=schema, validation="warn")
    assert loose.secret_arguments == ("card",)
    assert mask_arguments(loose, {"card": "4111", "pin": "1"}) == {"card": "[hidden]", "pin": "1"}


def test_declared_secret_covers_its_nested_secrets() -> None:
    schema = of(card=of(number=SECRET), pin=PLAIN)
    assert a_tool(input_schema=schema, secrets=("card",)).secret_arguments == ("card",)
    assert a_tool(input_schema=schema, secrets=("pin",)).secret_arguments == ("card.number", "pin")


@table("more", {"additionalProperties": SECRET}, {"writeOnly": True}, {"propertyNames": SECRET})
def test_unnamed_secrets_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(RegistrationError, match=r"arguments without a name.*name them in its `properties`") as caught:
        build_catalog(tools=[a_tool(input_schema={**SCHEMA, **more})], actors=[an_actor()])
    assert caught.value.context["field"] == "input_schema"


class Card(BaseModel):
    """A value that a typed function may take."""

    number: SecretStr
    name: str = ""


@tool(scope="generalist", requires_approval=True)
async def charge(amount: int, pin: SecretStr | None = None, card: Card | None = None, more: list[Card] = []) -> str:  # noqa: B006
    """Charge a card."""
    return str((amount, pin, card, more))


ARGS: dict[str, Any] = {
    "amount": 1,
    "pin": "987654",
    "card": {"number": "4111", "name": "Ana"},
    "more": [{"number": "4222", "name": "Bo"}],
}


def test_secrets_of_a_typed_function_are_never_shown() -> None:
    assert charge.masked_arguments == ("card.number", "more.number", "pin")
    card = render_card(
        effect="", title="", tool="charge", args=ARGS, schema=charge.schema.schema, secrets=charge.masked_arguments
    )
    text = card.model_dump_json() + dry_run_text(charge, ARGS) + str(mask_arguments(charge, ARGS))
    assert not [secret for secret in ("987654", "4111", "4222") if secret in text]
    assert mask_arguments(charge, ARGS) == {
        "amount": 1,
        "pin": "[hidden]",
        "card": {"number": "[hidden]", "name": "Ana"},
        "more": [{"number": "[hidden]", "name": "Bo"}],
    }
    assert {row.name: row.value for row in card.rows if not row.secret} == {
        "amount": "1",
        "card.name": "Ana",
        "more.0.name": "Bo",
    }


def test_shadow_masks_whole_arguments_with_a_secret_beneath() -> None:
    far = a_tool(input_schema=of(card=of(number=SECRET), pin=SECRET))
    near = a_tool(input_schema=of(card=of(digits=PLAIN)))
    catalog = build_catalog(tools=[far], actors=[an_actor(own_tools=(near,), shadowing="allow")])
    found = catalog.tool("book_flight@desk")
    assert found is not None
    assert found.masked_arguments == ("card", "pin")


def test_only_named_fields_are_hidden() -> None:
    given = {"a": [{"b": 1, "c": 2}], "d.e": 3, "d": {"e": 4, "f": 5}, "b": 6}
    assert hide(given, ("a.b", "d.e"), lambda _: "x") == {
        "a": [{"b": "x", "c": 2}],
        "d.e": "x",
        "d": {"e": "x", "f": 5},
        "b": 6,
    }
    assert given["d"] == {"e": 4, "f": 5}
    assert hide(given, (), lambda _: "x") is given
