import json
import time
from typing import Any

import pytest
from documents import names, page
from documents import tables as document_tables
from tables import table

from signoff.activities.models.command_line import Command, NoCommand, example, read_command, usage
from signoff.contracts.activity_messages import ModelTool

TEXT, NUMBER, INTEGER = {"type": "string"}, {"type": "number"}, {"type": "integer"}


def tool(name: str, required: dict[str, Any], **optional: Any) -> ModelTool:
    parameters = {"type": "object", "properties": {**required, **optional}, "required": list(required)}
    return ModelTool(name=name, description="", parameters=parameters)


REFUND = tool(
    "refund",
    {"customer": TEXT, "amount": NUMBER},
    note={"anyOf": [TEXT, {"type": "null"}]},
    unit={"enum": ["EUR", "USD"], "default": "EUR"},
)
REFUND_ALL = tool("refund_all", {"customer": TEXT})
TAG = tool("tag-it", {"tags": {"type": "array", "items": TEXT}, "urgent": {"type": "boolean"}})
SHIP = tool(
    "ship_Order",
    {"speed": {"$ref": "#/$defs/Speed"}, "größe": INTEGER},
    codes={"type": "array", "items": INTEGER},
    extra={"type": "object"},
    either={"type": ["integer", "string"]},
    mixed={"anyOf": [TEXT, {"type": "array", "items": TEXT}]},
    any={},
    level={"enum": [1, 2, None]},
)
SHIP.parameters["$defs"] = {"Speed": {"enum": ["slow", "Fast"], "type": "string"}}
STATUS = tool("status", {})
TOOLS = (REFUND, REFUND_ALL, TAG, SHIP, STATUS)
ANA = {"customer": "ana", "amount": 50}


@table(
    ("line", "name", "args"),
    ("refund ana 50", "refund", ANA),
    ("  REFUND   ana\t50\n", "refund", ANA),
    ("refund amount=50 ana", "refund", ANA),
    ("refund ana AMOUNT=50", "refund", ANA),
    ("refund customer=ana amount=50", "refund", ANA),
    ("refund ana -12.5", "refund", {"customer": "ana", "amount": -12.5}),
    ("refund ana amount=-3", "refund", {"customer": "ana", "amount": -3}),
    ("refund ana +.5e1", "refund", {"customer": "ana", "amount": 5.0}),
    ("refund 50 50", "refund", {"customer": "50", "amount": 50}),
    ('refund "Ana Maria" 50', "refund", {"customer": "Ana Maria", "amount": 50}),
    ("refund 'it is \"her\"' 50", "refund", {"customer": 'it is "her"', "amount": 50}),
    ("refund „Ana Maria“ 50", "refund", {"customer": "Ana Maria", "amount": 50}),
    ("refund «Zoë 李» 50", "refund", {"customer": "Zoë 李", "amount": 50}),
    ("refund Ana's 50", "refund", {"customer": "Ana's", "amount": 50}),
    ('refund "" 50', "refund", {"customer": "", "amount": 50}),
    ('refund "a=b" 50', "refund", {"customer": "a=b", "amount": 50}),
    ("refund https://x.test/?a=b 50", "refund", {"customer": "https://x.test/?a=b", "amount": 50}),
    ("refund ana 50 note=null", "refund", ANA | {"note": None}),
    ('refund ana 50 note="null"', "refund", ANA | {"note": "null"}),
    ('refund note="so late" ana 50 unit=usd', "refund", ANA | {"note": "so late", "unit": "USD"}),
    ("refund_all ana", "refund_all", {"customer": "ana"}),
    ("refund  all ana", "refund_all", {"customer": "ana"}),
    ("Refund All ana", "refund_all", {"customer": "ana"}),
    ("tag-it a,b true", "tag-it", {"tags": ["a", "b"], "urgent": True}),
    ('tag-it ["a b", "c"] no', "tag-it", {"tags": ["a b", "c"], "urgent": False}),
    ('tag-it "a, b" YES', "tag-it", {"tags": ["a, b"], "urgent": True}),
    ("tag-it tags=[] false", "tag-it", {"tags": [], "urgent": False}),
    ("ship order fast 3", "ship_Order", {"speed": "Fast", "größe": 3}),
    ("ship order fast GRÖSSE=3 codes=1,-2", "ship_Order", {"speed": "Fast", "größe": 3, "codes": [1, -2]}),
    ('ship_order slow 3 extra={"a": 1}', "ship_Order", {"speed": "slow", "größe": 3, "extra": {"a": 1}}),
    ("ship_order slow 3 either=7", "ship_Order", {"speed": "slow", "größe": 3, "either": 7}),
    ('ship_order slow 3 either="7"', "ship_Order", {"speed": "slow", "größe": 3, "either": "7"}),
    ("ship_order slow 3 mixed=a", "ship_Order", {"speed": "slow", "größe": 3, "mixed": "a"}),
    ("ship_order slow 3 mixed=a,b", "ship_Order", {"speed": "slow", "größe": 3, "mixed": ["a", "b"]}),
    ("ship_order slow 3 any=7", "ship_Order", {"speed": "slow", "größe": 3, "any": "7"}),
    ("ship_order slow 3 level=2", "ship_Order", {"speed": "slow", "größe": 3, "level": 2}),
    ("ship_order slow 3 level=null", "ship_Order", {"speed": "slow", "größe": 3, "level": None}),
    ("status", "status", {}),
)
def test_command_is_read_with_its_arguments(line: str, name: str, args: dict[str, Any]) -> None:
    command = read_command(line, TOOLS)
    assert command == Command(name, args)
    # `True` and `1`, or `5` and `5.0`, are equal only in Python.
    assert isinstance(command, Command)
    assert {key: repr(value) for key, value in command.args.items()} == {key: repr(args[key]) for key in args}


@table(
    ("line", "why"),
    ("give Ana her 50 euros back", "this line does not begin with the name of a tool"),
    ("do not refund", "this line does not begin with the name of a tool"),
    ("please refund ana 50", "this line does not begin with the name of a tool"),
    ("", "this line does not begin with the name of a tool"),
    ("refunds ana 50", "this line does not begin with the name of a tool"),
    ("refund_ana 50", "this line does not begin with the name of a tool"),
    ("refund, ana 50", "this line does not begin with the name of a tool"),
    ("amount=50 refund ana", "this line does not begin with the name of a tool"),
    ("refund", "`customer` is missing"),
    ("refund ana", "`amount` is missing"),
    ("refund all", "`customer` is missing"),
    ("refund ana 50 now", "`now` is left over"),
    ("refund ana 50 euros back", "`euros` is left over"),
    ("refund 50 ana", "`ana` is not a number, for `amount`"),
    ("refund ana 50.", "`50.` is not a number, for `amount`"),
    ("refund ana 50€", "`50€` is not a number, for `amount`"),
    ("refund ana \u0665\u0660", "`\u0665\u0660` is not a number, for `amount`"),
    ("refund ana 1_000", "`1_000` is not a number, for `amount`"),
    ("refund ana 1e999", "`1e999` is not a number, for `amount`"),
    ("refund ana nan", "`nan` is not a number, for `amount`"),
    ('refund ana "50"', "`50` is not a number, for `amount`"),
    ("refund ana 90071992547409920", "`90071992547409920` is not a number, for `amount`"),
    ("refund ana 50 amount=50", "`50` is left over"),
    ("refund ana amount=50 amount=60", "`amount` is given twice"),
    ("refund ana amount=", "`amount` has no value after `=`"),
    ("refund ana 50 reason=late", "`refund` has no parameter `reason`"),
    ("refund ana 50 unit=GBP", "`GBP` is not one of `EUR`, `USD`, for `unit`"),
    ('refund "ana 50', "the quote before `ana 50` is not closed"),
    ('refund "ana"50', "a quote before `50` is followed by no blank"),
    ("tag-it a,,b true", "`a,,b` is not a list such as `a,b`, for `tags`"),
    ("tag-it [a] true", "`[a]` is not a list such as `a,b`, for `tags`"),
    ("tag-it a maybe", "`maybe` is not `true` or `false`, for `urgent`"),
    ("tag it a true", "this line does not begin with the name of a tool"),
    ("ship order fast 3.5", "`3.5` is not an integer, for `größe`"),
    ("ship order fast 3 codes=1,b", "`1,b` is not a list such as `a,b`, for `codes`"),
    ("ship order fast 3 extra=x", "`x` is not a JSON object, for `extra`"),
    ("ship order fast 3 extra=[1]", "`[1]` is not a JSON object, for `extra`"),
    ("status now", "`now` is left over"),
)
def test_incomplete_or_surplus_arguments_make_no_call(line: str, why: str) -> None:
    found = read_command(line, TOOLS)
    assert isinstance(found, NoCommand)
    assert found.why == why


@table(
    "garbage",
    "[" * 10_000,
    "[ " * 5_000,
    '"' * 10_000,
    "{" * 10_000,
    "a=" * 5_000,
    "9" * 10_000,
    "\U0001f600 " * 2_500,
    "\ud800\x00​" * 3_000,
    "_" * 10_000,
    "[" * 180 + " " + ("[" * 100 + " ") * 90,
    ids=lambda each: ascii(each[:2]),
)
def test_ten_kilobytes_of_garbage_make_no_call_within_two_seconds(garbage: str) -> None:
    begun = time.process_time()
    for line in (garbage, f"refund {garbage}", f"refund ana amount={garbage}", f"tag-it a {garbage}"):
        assert isinstance(read_command(line, TOOLS), NoCommand)
    assert time.process_time() - begun < 2


def test_tool_names_that_differ_only_in_underscores_need_exact_spelling() -> None:
    twins = (tool("pay_out", {}), tool("pay__out", {}))
    assert read_command("pay__out", twins) == Command("pay__out", {})
    assert isinstance(read_command("pay out", twins), NoCommand)


@table(
    ("shown", "line"),
    (REFUND, "refund CUSTOMER AMOUNT [note=NOTE] [unit=EUR|USD]"),
    (TAG, "tag-it TAGS URGENT"),
    (STATUS, "status"),
    (tool("look", {"at": {"enum": ["a b", "c"]}}), "look AT"),
    ids=lambda each: each.name if isinstance(each, ModelTool) else "",
)
def test_usage_shows_required_parameters_first(shown: ModelTool, line: str) -> None:
    assert usage(shown) == line


@table(
    ("schema", "word"),
    (TEXT, "ana"),
    ({**TEXT, "examples": ["Ana Maria"]}, '"Ana Maria"'),
    ({**TEXT, "default": "x"}, "x"),
    ({**TEXT, "format": "date"}, "2030-01-31"),
    (NUMBER, "50"),
    ({**INTEGER, "maximum": 5}, "5"),
    ({**INTEGER, "exclusiveMinimum": 100}, "101"),
    ({"type": "boolean"}, "true"),
    ({"enum": ["slow", "fast"]}, "slow"),
    ({"anyOf": [{"type": "null"}, NUMBER]}, "50"),
    ({"type": "array", "items": INTEGER}, "50"),
    ({"type": "array", "examples": [["a", "b"]]}, '["a", "b"]'),
    ({"type": "object"}, "{}"),
    ({}, "ana"),
)
def test_example_calls_its_tool(schema: dict[str, Any], word: str) -> None:
    declared = tool("do_it", {"customer": schema})
    assert example(declared) == f"do_it {word}"
    assert isinstance(read_command(example(declared), [declared]), Command)


@pytest.mark.parametrize(
    ("name", "word"),
    [("order_id", "A7"), ("email", "ana@example.com"), ("invoice", "A7"), ("city", "Lisbon"), ("payee", "ana")],
)
def test_example_of_a_text_depends_on_the_parameter_name(name: str, word: str) -> None:
    assert example(tool("do_it", {name: TEXT})) == f"do_it {word}"


def test_example_that_is_not_a_command_is_omitted() -> None:
    assert example(tool("do_it", {"x": {**INTEGER, "default": "none"}})) == ""


def test_recursive_type_has_no_example_and_takes_words() -> None:
    nested = tool("do_it", {"x": {"$ref": "#/$defs/Tree"}})
    nested.parameters["$defs"] = {"Tree": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Tree"}}, TEXT]}}
    assert (example(nested), usage(nested)) == ("", "do_it X")
    assert read_command("do_it a,b", [nested]) == Command("do_it", {"x": ["a", "b"]})


def test_documented_commands_give_the_documented_calls() -> None:
    tag_order = tool("tag_order", {"order": TEXT, "tags": {"type": "array", "items": TEXT}})
    documented = document_tables("docs/models.md", "The offline model")
    assert len(documented) == 7
    for line, outcome in documented:
        found = read_command(names(line)[0], [REFUND, tag_order])
        if isinstance(found, Command):
            args = ", ".join(f"{name}={json.dumps(value)}" for name, value in found.args.items())
            assert outcome == f"`{found.tool}({args})`"
        else:
            assert outcome.startswith("nothing: ")
            assert outcome.removeprefix("nothing: ") in (found.why, "the line does not begin with a tool")
    assert f"`{usage(tool('refund', {'customer': TEXT, 'amount': NUMBER}, note=TEXT))}`" in page("docs/models.md")
