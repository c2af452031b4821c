from datetime import UTC, datetime
from typing import Any

from gateway_rig import LETTER, STATEMENT, GatewayRig
from tables import table
from test_pages import browser, words

from signoff.approvals.card import render_card
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.content import Content
from signoff.gateway.approvals.value_tables import ValueTable
from signoff.gateway.pages.value_view import (
    HEAD_CHARS,
    LINES,
    Row,
    key_rows,
    mark_new,
    usual_arguments,
    value_rows,
    values_count,
)
from signoff.testing import a_request
from signoff.texts.formatter import Formatter

ENGLISH = Formatter("en", UTC, datetime(2026, 11, 21, 17, 0, tzinfo=UTC))


def asked(args: dict[str, Any], **schema: Any) -> ApprovalRequest:
    card = render_card(effect="Do it", title="", tool="do", args=args, schema={"properties": schema})
    return a_request(tool="do", args=Content(inline=args), card=card)


def rows(args: dict[str, Any], loaded: Any = None, **schema: Any) -> tuple[Row, ...]:
    return value_rows(asked(args, **schema), args if loaded is None else loaded, ENGLISH)


def test_text_keeps_its_lines() -> None:
    (row,) = rows({"text": LETTER})
    assert (row.value, row.lines, row.rest, row.length) == (LETTER, 6, "", 0)
    (forged,) = rows({"text": "one⏎two"})
    assert (forged.value, forged.lines) == ("one⟦U+23CE⟧two", 0)
    (hidden,) = rows({"text": "one\n\u202etwo\r\nthree"})
    assert hidden.value == "one\n⟦U+202E⟧two\nthree"


def test_long_text_expands_after_its_first_lines() -> None:
    for text in ("\n".join(f"line {n}" for n in range(20)), STATEMENT):
        (row,) = rows({"text": text})
        assert (row.lines, row.length) == (text.count("\n") + 1, len(text))
        assert row.value.count("\n") + 1 == LINES
        assert f"{row.value}\n{row.rest}" == text


def test_text_with_long_lines_is_truncated_by_characters() -> None:
    (row,) = rows({"text": "\n".join("x" * 1_000 for _ in range(5))})
    assert (row.value, row.lines) == ("x" * 1_000, 5)
    long = f"{'y' * (HEAD_CHARS + 1)}\nend"
    (first,) = rows({"text": long})
    assert (first.lines, first.length, first.rest) == (0, len(long), long)
    assert first.value.endswith("…")


def test_unloaded_text_shows_only_its_length() -> None:
    (row,) = rows({"text": "word " * 400}, loaded=())
    assert (row.rest, row.length, row.lines) == ("", 2_000, 0)


@table(("real", "other"), ("to\nwhom", "to⏎whom"), ("x" * 100, f"{'x' * 79}…"), ("\u202eto", "⟦U+202E⟧to"))
def test_truncated_text_never_expands_into_another_argument(real: str, other: str) -> None:
    drawn = rows({real: f"pay all\n{'a' * 2_000}", other: f"pay nothing\n{'b' * 2_000}"})
    assert "pay nothing" not in f"{drawn[0].value} {drawn[0].rest}"
    assert drawn[0].value.startswith("pay all")


@table(
    ("name", "schema", "code"),
    ("sql", {"type": "string"}, True),
    ("sourceCode", {"type": "string"}, True),
    ("body", {"type": "string", "format": "sql"}, True),
    ("text", {"type": "string"}, False),
    ("code", {"type": "integer"}, False),
    ("encode", {"type": "string"}, False),
)
def test_code_argument_is_shown_in_monospace(name: str, schema: dict[str, Any], code: bool) -> None:
    (row,) = rows({name: "1" if schema["type"] == "string" else 1}, **{name: schema})
    assert row.code is code


def test_undeclared_argument_is_marked_in_the_readers_language() -> None:
    german = Formatter("de", UTC, datetime(2026, 11, 21, 17, 0, tzinfo=UTC))
    request = asked({"to": "Ana", "bcc": "eve"}, to={"type": "string"})
    parts = value_rows(request, {}, german)
    assert [each.label for each in parts] == ["To", "Bcc ⟦nicht deklariert⟧"]


def test_value_count_includes_values_that_the_card_does_not_show() -> None:
    request = asked({"to": "Bo", "items": [{"article": f"pencil {n}", "pieces": n} for n in range(300)]})
    assert len(request.card.rows) < 60
    assert values_count(request) == 601


async def test_card_shows_an_email_and_a_statement_line_by_line(gateway: GatewayRig) -> None:
    async with browser(gateway) as page:
        letter = (await page.get(f"/approvals/{await gateway.asked('write')}")).text
        assert f'<bdi class="lines">{LETTER}</bdi>' in letter
        assert "not fully read" not in letter
        query = (await page.get(f"/approvals/{await gateway.asked('query')}")).text
    assert f"33 lines, {len(STATEMENT)} characters not fully read" in words(query)
    assert '<bdi class="lines code">select *\n  from invoices\n' in query
    assert query.count('class="lines code"') == 2


def keys(args: dict[str, Any], first: tuple[str, ...] = (), **schema: Any) -> tuple[list[str], list[str]]:
    request = asked(args, **schema)
    above, below = key_rows(value_rows(request, args, ENGLISH), request, first)
    return [row.label for row in above], [row.label for row in below]


def test_key_rows_are_the_amount_and_the_first_short_values() -> None:
    args = {"memo": "x" * 200, "to": "Ana", "note": "one\ntwo", "amount": 420, "by": "Bo", "at": {"place": "Rome"}}
    assert keys(args) == (["Amount", "To", "By"], ["Memo", "Note", "At / Place"])


def test_key_rows_show_the_declared_arguments_alone() -> None:
    args = {"to": "Ana", "amount": 420, "by": "Bo"}
    assert keys(args, ("by", "absent")) == (["By"], ["To", "Amount"])
    assert keys({**args, "by": "one\ntwo"}, ("by",)) == ([], ["To", "Amount", "By"])


def test_key_rows_show_values_that_differ_from_the_default() -> None:
    args: dict[str, Any] = {f"option{n}": "default" for n in range(40)} | {"option33": "off"}
    schema = {"properties": {name: {"type": "string", "default": "default"} for name in args}}
    usual = usual_arguments(args, schema)
    assert usual_arguments(None, schema) == usual_arguments({"x": 1}, {"properties": {"x": True}}) == frozenset()
    assert set(args) - usual == {"option33"}
    request = asked(args, **schema["properties"])
    above, _ = key_rows(value_rows(request, args, ENGLISH), request, (), usual)
    assert (above[0].label, above[0].value) == ("Option33", "off")
    declared, _ = key_rows(value_rows(request, args, ENGLISH), request, ("option1",), usual)
    assert [row.label for row in declared] == ["Option1"]


def test_key_rows_show_the_range_of_a_list_of_objects() -> None:
    lines = [{"to": f"Person {n}", "amount": 3_000} for n in range(1, 4)]
    args = {"month": "May", "by": "Bo", "at": "Rome", "lines": lines}
    request = asked(args)
    above, below = key_rows(value_rows(request, args, ENGLISH), request, ())
    assert [row.label for row in above] == ["Month", "By", "Lines"]
    assert above[-1].value == "Amount: 3,000 to 3,000 (entry 1), 9,000 in all"
    assert isinstance(below[-1], ValueTable)


def test_key_rows_show_no_secret() -> None:
    card = render_card(
        effect="Do it", title="", tool="do", args={"pin": "1234", "to": "Ana"}, schema={}, secrets=["pin"]
    )
    request = a_request(tool="do", args=Content(inline={}), card=card)
    above, below = key_rows(value_rows(request, {}, ENGLISH), request, ("pin",))
    assert ([row.label for row in above], [row.label for row in below]) == ([], ["Pin", "To"])


def test_new_recipient_is_marked_and_at_the_top() -> None:
    args = {"note": "a", "from": "b", "via": "c", "to": "Eve", "amount": 5}
    request = asked(args, amount={"type": "number"})
    marked = mark_new(value_rows(request, args, ENGLISH), {"to": "Eve"}, args, ENGLISH)
    keys, _ = key_rows(marked, request, ())
    assert [(row.name, row.new.partition(":")[0]) for row in keys] == [
        ("amount", ""),
        ("to", "New here"),
        ("note", ""),
    ]


def test_new_items_of_a_list_are_named_or_marked() -> None:
    args = {"to": ["Zoe", "Eve"], "cc": ["x" * 60, "y" * 80]}
    drawn = value_rows(asked(args), args, ENGLISH)
    marked = mark_new(drawn, {"to.1": "Eve", "cc.1": "y" * 80}, args, ENGLISH)
    found = {row.name: row.new for row in marked if isinstance(row, Row)}
    assert found["to"] == "New here: Eve"
    assert (found["cc.0"], found["cc.1"]) == ("", "New here: you see no earlier approval")
    assert mark_new(drawn, {}, args, ENGLISH) == drawn


def test_recipients_without_comparison_are_marked() -> None:
    people = [{"name": "Zoe", "pay": 1}, {"name": "Max", "pay": 2}]
    args = {"to": "x", "cc": {"name": "Zoe"}, "via": ["Zoe", "Max"], "all": people, "note": "y"}
    unknown, some = "Not compared with earlier approvals", "Some are not compared with earlier approvals"
    recipients = {"to": "", "cc": "", "via.0": "Zoe", "via.1": "", "all.0": "", "all.1": ""}
    marked = mark_new(value_rows(asked(args), args, ENGLISH), recipients, args, ENGLISH)
    assert {row.name: row.new for row in marked} == {
        "to": unknown,
        "cc.name": unknown,
        "via": f"New here: Zoe · {some}",
        "all": some,
        "note": "",
    }


def test_masked_recipient_is_marked() -> None:
    card = render_card(effect="Do it", title="", tool="do", args={"to": "1234"}, schema={}, secrets=["to"])
    request = a_request(tool="do", args=Content(inline={}), card=card)
    [row] = mark_new(value_rows(request, {}, ENGLISH), {"to": ""}, {}, ENGLISH)
    assert row.new == "Not compared with earlier approvals"


def test_named_new_items_show_look_alike_letters() -> None:
    args = {"to": ["Anna", "\u0410nna"]}
    marked = mark_new(value_rows(asked(args), args, ENGLISH), {"to.1": "\u0410nna"}, args, ENGLISH)
    assert [row.new for row in marked] == ["New here: \u0410\u27e6U+0410\u27e7nna"]
