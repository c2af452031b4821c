from call_rig import refund_tool
from turn_fixtures import Ledger, pay_tool

from signoff.gateway.calls.own_calls import listing_of
from signoff.plugins.mcp.tool_calls import list_tools


def test_tools_are_sorted_and_carry_hints() -> None:
    ledger = Ledger()
    tools = [
        pay_tool(ledger, title="Pay"),
        pay_tool(ledger, False, name="look", read_only=True, effect=""),
        pay_tool(ledger, name="again", idempotent=True),
        refund_tool(),
    ]
    again, look, pay = list_tools(map(listing_of, tools))
    assert (again["name"], look["name"], pay["name"], pay["title"]) == ("again", "look", "pay", "Pay")
    assert "title" not in look
    assert [each["annotations"]["readOnlyHint"] for each in (again, look, pay)] == [False, True, False]
    assert [each["annotations"]["destructiveHint"] for each in (again, look, pay)] == [True, False, True]
    assert [each["annotations"]["idempotentHint"] for each in (again, look, pay)] == [True, True, False]
    assert "amount" in pay["inputSchema"]["properties"]


def test_schema_with_alternatives_is_listed_as_one_object() -> None:
    by_mail = {"properties": {"mail": {"type": "string"}, "key": {"type": "string"}}, "required": ["key", "mail"]}
    by_number = {
        "properties": {"number": {"type": "integer"}, "key": {"type": "integer"}},
        "required": ["key", "number"],
    }
    chosen = {"type": "object", "oneOf": [by_mail, {"$ref": "#/$defs/by_number"}], "$defs": {"by_number": by_number}}
    tool = pay_tool(Ledger(), False, input_schema=chosen, effect="")
    (found,), (whole,) = list_tools([listing_of(tool)]), list_tools([listing_of(tool)], takes_choices=True)
    shown = found["inputSchema"]
    assert whole["inputSchema"] == chosen
    assert {"oneOf", "anyOf", "allOf"}.isdisjoint(shown)
    assert shown["type"] == "object"
    assert shown["properties"] == {
        "mail": {"type": "string"},
        "number": {"type": "integer"},
        "key": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    }
    assert (shown["required"], shown["description"]) == (["key"], "Give one of: `key` and `mail`; `key` and `number`.")
