from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import table

from signoff.approvals import card as card_module
from signoff.approvals.argument_rows import NAME_CHARS
from signoff.approvals.card import (
    CARD_BYTES,
    NO_AMOUNT,
    ROWS,
    ROWS_PER_ARGUMENT,
    Amount,
    amount_of,
    card_amount,
    draw_card,
    effect_sentence,
    render_card,
)
from signoff.approvals.request_state import NO_CARD
from signoff.contracts.approval import Card, CardRow
from signoff.contracts.limits import CARD_VALUE_CHARS, EFFECT_CHARS
from signoff.testing.builders import a_question

NASTY = 'a\u202e\u200b\n{}⟦⟧⏎"\\東🛫\ud800'
TEXT = st.text(max_size=30) | st.text(alphabet=NASTY, max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(TEXT, inner, max_size=8),
    max_leaves=30,
)
BOOK: dict[str, Any] = {"flight": "TP 531", "totalCost": 420.0, "card": "4111111111111111"}


def card(args: dict[str, Any], **more: Any) -> Card:
    plain: dict[str, Any] = {"effect": "", "title": "", "tool": "book_flight", "schema": {}}
    return render_card(**{**plain, "args": args, **more})


def effect(template: str, args: dict[str, Any], **more: Any) -> str:
    return card(args, effect=template, **more).effect


def texts(shown: Card) -> list[str]:
    rows = [text for row in shown.rows for text in (row.name, row.label, row.value, row.format)]
    return [shown.effect, shown.agent_says, shown.note, shown.tool_title, *rows]


def test_card_is_rendered_from_the_declaration_and_the_question() -> None:
    asked = a_question(secrets=("pin",), show=("to", "pin", "card"), agent_says="as you said", notes=("asked again",))
    declaration = {
        "effect": "Pay {to}",
        "title": "Payments",
        "input_schema": {"properties": {"to": {"title": "Whom"}, "pin": {}, "card": {"title": "Number"}}},
        "secrets": ["card"],
    }
    drawn = draw_card(asked, declaration, {"to": "Ana", "pin": "1234", "card": "4111", "more": "x"}, "0a1b2c3d")
    assert (drawn.effect, drawn.tool_title, drawn.mark) == ("Pay Ana", "Payments", "0a1b2c3d")
    assert (drawn.agent_says, drawn.note) == ("as you said", "asked again")
    assert [(row.name, row.label, row.secret) for row in drawn.rows[:3]] == [
        ("to", "Whom", False),
        ("pin", "Pin", True),
        ("card", "Number", True),
    ]
    assert [row.value for row in drawn.rows if not row.name] == ["1 more not shown"]
    bare = draw_card(asked, declaration | {"effect": "", "title": ""}, {"to": "Ana"}, "0a1b2c3d")
    assert bare.effect.startswith("pay")


@table(
    ("fields", "asked_note", "note"),
    ({}, "", ""),
    ({}, "asked again", "asked again"),
    ({"runs": "worker", "undeclared": False}, "", ""),
    ({"runs": "external"}, "", "`coder` runs the call itself, outside Signoff"),
    ({"undeclared": True}, "asked again", "this tool is not declared; asked again"),
    (
        {"runs": "external", "undeclared": True},
        "asked again",
        "`coder` runs the call itself, outside Signoff; this tool is not declared; asked again",
    ),
)
def test_card_note_starts_with_the_runner_and_a_missing_declaration(
    fields: dict[str, Any], asked_note: str, note: str
) -> None:
    declaration = {"effect": "", "title": "", "input_schema": {}, "secrets": [], **fields}
    assert (
        draw_card(a_question(actor="coder", notes=(asked_note,) if asked_note else ()), declaration, {}, "").note
        == note
    )


def test_label_marks_an_undeclared_argument() -> None:
    schema = {"properties": {"to": {"type": "string", "title": "Whom ⟦not declared⟧"}}}
    labels = [row.label for row in card({"to": "Ana", "bcc": "eve"}, schema=schema).rows]
    assert labels == ["Whom ⟦U+27E6⟧not declared⟦U+27E7⟧", "Bcc ⟦not declared⟧"]


DEFAULTS: dict[str, Any] = {
    "properties": {
        "amount": {"type": "number"},
        "currency": {"$ref": "#/$defs/currency", "default": "EUR"},
        "urgent": {"type": "boolean", "default": False},
        "note": {"type": "string", "default": None},
        "pin": {"type": "string", "default": "0000"},
        "terms": {"type": "object", "default": {"days": 30}},
        "memo": {"type": "string", "default": "x" * 5_000},
    },
    "$defs": {"currency": {"type": "string", "title": "Currency ⟦default⟧"}},
}


def test_defaults_of_missing_arguments_appear_with_a_mark() -> None:
    drawn = card({"amount": 9}, schema=DEFAULTS, effect="Pay {amount} {currency} {note} {pin}", secrets=["pin"])
    assert drawn.effect == "Pay 9 EUR — hidden"
    assert [(row.name, row.label, row.value) for row in drawn.rows] == [
        ("amount", "Amount", "9"),
        ("currency", "Currency ⟦U+27E6⟧default⟦U+27E7⟧ ⟦default⟧", "EUR"),
        ("urgent", "Urgent ⟦default⟧", "no"),
    ]
    assert drawn.whole


def test_default_of_a_given_argument_does_not_appear() -> None:
    drawn = card({"amount": 9, "currency": "USD"}, schema=DEFAULTS, effect="Pay {amount} {currency}", show=["currency"])
    assert drawn.effect == "Pay 9 USD"
    assert [(row.label, row.value) for row in drawn.rows if row.name] == [
        ("Currency ⟦U+27E6⟧default⟦U+27E7⟧", "USD"),
    ]


def test_defaults_without_room_leave_the_card_whole() -> None:
    schema = {"properties": {f"a{n}": {"default": n} for n in range(200)}}
    drawn = card({"a0": 1, "a1": 1}, schema=schema)
    assert len(drawn.rows) == ROWS
    assert drawn.whole


@table(
    ("count", "named"),
    (1, "`a0`"),
    (2, "`a0`, `a1`"),
    (3, "`a0`, `a1`, `a2`"),
    (4, "`a0`, `a1`, `a2` and 1 more"),
    (5, "`a0`, `a1`, `a2` and 2 more"),
)
def test_card_names_the_arguments_that_repeat_a_secret(count: int, named: str) -> None:
    args = {"pin": "9400", "to": "Ana", **{f"a{number}": "my 9400" for number in range(count)}}
    assert card(args, secrets=["pin"]).note == f"a secret value is repeated in {named}, and masked there"


def test_effect_sentence_is_filled_from_the_arguments() -> None:
    template = "Book flight {flight}, {totalCost} EUR, for {who.name} / {who.tags.1} ({absent}{none}), card {card}"
    args = {**BOOK, "who": {"name": "Ana", "tags": [{}, "vip"]}, "none": None}
    assert effect(template, args, secrets=["card"]) == "Book flight TP 531, 420 EUR, for Ana / vip (——), card hidden"


@table(("template", "sentence"), ("Pay {to}", "Pay Ana [hidden]"), ("", "pay: to Ana [hidden], pin hidden"))
def test_sentence_repeats_no_secret(template: str, sentence: str) -> None:
    args = {"to": "Ana 9400x", "pin": "9400x"}
    assert effect_sentence(template, title="", tool="pay", args=args, schema={}, secrets=("pin",)) == sentence


@table(
    "value",
    "{totalCost}",
    "{{totalCost}}",
    "{0}",
    "{flight}",
    "{flight.__class__}",
    "%(totalCost)s",
    "{totalCost!r:>9}",
)
def test_text_of_an_argument_is_never_a_template(value: str) -> None:
    assert effect("Book {flight} for {totalCost}", {**BOOK, "flight": value}) == f"Book {value} for 420"


@table("template", "{flight.__class__}", "{flight!r}", "{flight:>99999999}", "{flight.upper}")
def test_template_supports_only_names(template: str) -> None:
    assert effect(template, BOOK) == "—"


def test_braces_without_a_name_are_kept() -> None:
    assert effect("Clear {} and {{", BOOK) == "Clear {} and {{"


def test_sentence_without_a_template_has_the_tool_and_its_first_arguments() -> None:
    args = {"a": 1, "b": "x", "c": {"d": 1, "e": 2}, "f": 4}
    assert effect("", args, title="Book flight") == "Book flight: a 1, b x, c 2 values, 1 more"
    assert effect(" ", {"pin": 1}, secrets=["pin"], agent_says="Harmless") == "book_flight: pin hidden"
    assert effect("", {}) == "book_flight"


def test_long_value_leaves_room_for_the_next() -> None:
    assert effect("Send {text} to {to}", {"text": "x" * 900, "to": "eve@evil.example"}).endswith(
        "… to eve@evil.example"
    )
    for before in range(12):
        many = effect("x" * before + "{a} " * 50, {"a": "\u202e"})
        assert len(many) <= EFFECT_CHARS
        assert many.count("⟦") == many.count("⟧")


def test_every_argument_is_a_row_in_order() -> None:
    shown = card({**BOOK, "pin": 1234, "who": {"name": "Ana"}}, secrets=("card", "pin"))
    assert [(row.name, row.label, row.value, row.secret, row.length) for row in shown.rows] == [
        ("flight", "Flight", "TP 531", False, 6),
        ("totalCost", "Total cost", "420", False, 3),
        ("card", "Card", "hidden, 16 characters", True, 16),
        ("pin", "Pin", "hidden", True, 4),
        ("who.name", "Who / Name", "Ana", False, 3),
    ]


def test_long_value_is_truncated_separately_with_its_length() -> None:
    text, cost = card({"text": "x" * 501, "totalCost": 420}).rows
    assert (len(text.value), text.cut, text.length) == (CARD_VALUE_CHARS, True, 501)
    assert (cost.value, cost.cut) == ("420", False)
    assert not card({"text": "x" * 500}).rows[0].cut


def test_long_secret_is_masked_and_not_truncated() -> None:
    (row,) = card({"key": "x" * 4_000}, secrets=["key"]).rows
    assert (row.value, row.cut) == ("hidden, 4000 characters", False)


def test_show_limits_the_rows_and_the_card_reports_it() -> None:
    args = {"a": 1, "b": {"c": 2, "d": [3, {"e": 4}]}, "f": 5}
    assert [row.value for row in card(args, show=["f", "b.d"]).rows] == ["3", "4", "5", "2 more not shown"]
    assert [row.value for row in card(args, show=[]).rows] == ["5 more not shown"]
    assert [row.name for row in card({"a": 1}, show=["a"]).rows] == ["a"]


def test_argument_with_many_values_does_not_displace_others() -> None:
    shown = card({"to": [f"{n},{n}" for n in range(500)], "totalCost": 420})
    assert len(shown.rows) == ROWS_PER_ARGUMENT + 2
    assert shown.rows[-2].value == f"{500 - ROWS_PER_ARGUMENT} more of to not shown"
    assert shown.rows[-1].value == "420"


def test_first_value_over_the_limit_is_counted() -> None:
    assert len(card({"to": {str(n): n for n in range(ROWS_PER_ARGUMENT)}}).rows) == ROWS_PER_ARGUMENT
    assert card({"to": {str(n): n for n in range(ROWS_PER_ARGUMENT + 1)}}).rows[-1].value == "1 more of to not shown"


def test_values_are_shortened_before_a_row_is_dropped() -> None:
    shown = card({f"a{n}": "東" * 500 for n in range(20)})
    assert [row.name for row in shown.rows] == [f"a{n}" for n in range(20)]
    assert all(row.cut and row.length == 500 for row in shown.rows)


@pytest.mark.parametrize("show", [None, [f"a{n}" for n in range(300)]])
def test_incomplete_card_shows_the_number_of_missing_values(show: list[str] | None) -> None:
    args = {f"a{n}": "🛫" * 600 for n in range(400)}
    shown = card(args, show=show)
    rows = [row for row in shown.rows if row.name]
    missing = (400 if show is None else 300) - len(rows)
    assert 0 < len(rows) <= ROWS
    assert shown.rows[-1].value == f"this card is incomplete: {missing} values are missing"
    assert ("100 more not shown" in [row.value for row in shown.rows]) is (show is not None)
    assert len(shown.model_dump_json().encode()) <= CARD_BYTES


def test_text_of_the_agent_is_separate_escaped_and_short() -> None:
    shown = card(
        {},
        agent_says="Trust me\n\u202e" + "x" * 5_000,
        notes=("the tool changed while the request was waiting",),
        mark="0a1b2c3d",
    )
    assert shown.agent_says.startswith("Trust me⏎⟦U+202E⟧x")
    assert len(shown.agent_says) == 1_000
    assert (shown.note, shown.mark, shown.effect) == (
        "the tool changed while the request was waiting",
        "0a1b2c3d",
        "book_flight",
    )


def test_argument_cannot_imitate_the_cards_own_text() -> None:
    (row,) = card({"": "2 more not shown"}).rows
    assert row.name == '""'


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    args=st.dictionaries(TEXT, JSON, max_size=12),
    schema=st.dictionaries(st.sampled_from(["properties", "$ref", "anyOf", "items", "title", "type"]), JSON),
    effect=TEXT,
    secrets=st.lists(TEXT, max_size=3),
    show=st.none() | st.lists(TEXT, max_size=3),
    says=TEXT,
)
def test_any_json_gives_a_valid_card(
    args: dict[str, Any], schema: dict[str, Any], effect: str, secrets: list[str], show: list[str] | None, says: str
) -> None:
    shown = card(args, schema=schema, effect=effect, secrets=secrets, show=show, agent_says=says, title=says)
    assert Card.model_validate_json(shown.model_dump_json()) == shown
    assert len(shown.model_dump_json().encode()) <= CARD_BYTES
    for text in texts(shown):
        assert not set(text) & set("\u202e\u200b\n\r\0\ud800")
        assert text.count("⟦") == text.count("⟧")


@given(secret=st.text(alphabet="XYZ", min_size=4), template=st.sampled_from(["", "{a.pin}", "{a}", "{l}", "{l.0.pin}"]))
def test_secret_is_nowhere_on_the_card(secret: str, template: str) -> None:
    args = {"a": {"pin": secret, "b": [secret]}, "l": [{"pin": secret}]}
    shown = card(args, effect=template, secrets=["a.pin", "a.b", "l.pin"])
    assert secret not in " ".join(texts(shown))
    assert sum(row.secret for row in shown.rows) == 3


def test_deep_arguments_are_shown() -> None:
    deep: Any = "bottom"
    for _ in range(3_000):
        deep = {"a": [deep, {}]}
    shown = card({"x": deep})
    assert shown.rows[0].value == "bottom"
    assert shown.rows[-1].value == f"{3_001 - ROWS_PER_ARGUMENT} more of x not shown"


def test_card_that_was_not_drawn_is_not_whole() -> None:
    assert not NO_CARD.whole
    assert Card(effect="Pay 5").whole


def test_declared_arguments_come_first_on_every_card() -> None:
    declaration = {
        "effect": "Pay",
        "title": "",
        "input_schema": {},
        "secrets": [],
        "card": {"first": ["to", "items", "absent"]},
    }
    args = {"memo": "x", "items": [{"a": 1}, {"a": 2}], "to": "Ana", "by": "Bo"}
    drawn = draw_card(a_question(show=None), declaration, args, "")
    assert [row.name for row in drawn.rows] == ["to", "items.0.a", "items.1.a", "memo", "by"]


def amount_row(value: str = "20", name: str = "amount", **fields: Any) -> CardRow:
    return CardRow(**{"name": name, "label": name.title(), "value": value, "format": "number"} | fields)


TO = CardRow(name="to", label="To", value="Ana", format="string")
EUR = CardRow(name="currency", label="Currency", value="EUR", format="string")


@table(
    ("rows", "amount"),
    ((), NO_AMOUNT),
    ((TO,), NO_AMOUNT),
    ((TO, EUR), NO_AMOUNT),
    ((TO, amount_row()), Amount("20", "")),
    ((EUR, TO, amount_row()), Amount("20", "EUR")),
    ((amount_row(), amount_row("21", "fee"), EUR), Amount("20", "EUR")),
    ((amount_row(secret=True), EUR), NO_AMOUNT),
    ((amount_row(cut=True), EUR), NO_AMOUNT),
    ((amount_row(secret=True), amount_row(cut=True), amount_row("21", "fee")), Amount("21", "")),
)
def test_amount_of_a_card_is_its_first_complete_one_with_the_currency(
    rows: tuple[CardRow, ...], amount: Amount
) -> None:
    assert amount_of(rows) == amount


PRICED: dict[str, Any] = {
    "effect": "Pay",
    "title": "",
    "secrets": ["budget"],
    "input_schema": {
        "properties": {
            "to": {"type": "string"},
            "fee": {"type": "number"},
            "total": {"type": "number"},
            "budget": {"type": "number"},
            "text": {"type": "string", "format": "money"},
            "currency": {"type": "string"},
        }
    },
}
TOTAL_FIRST = PRICED | {"card": {"first": ["total"]}}
DIGITS = "7" * NAME_CHARS


def with_default(name: str, default: Any) -> dict[str, Any]:
    fields = PRICED["input_schema"]["properties"]
    return PRICED | {"input_schema": {"properties": fields | {name: fields[name] | {"default": default}}}}


@table(
    ("declaration", "args", "fields", "amount"),
    pytest.param(PRICED, {"to": "Ana"}, {}, NO_AMOUNT, id="no number"),
    pytest.param(PRICED, {"to": "Ana", "fee": 5, "total": 20}, {}, Amount("5", ""), id="the first one"),
    pytest.param(TOTAL_FIRST, {"fee": 5, "total": 20}, {}, Amount("20", ""), id="the one that the tool puts first"),
    pytest.param(PRICED, {"total": 20.5, "currency": "EUR"}, {}, Amount("20.5", "EUR"), id="with a currency"),
    pytest.param(PRICED, {"budget": 900, "total": 20}, {}, Amount("20", ""), id="not a secret of the tool"),
    pytest.param(PRICED, {"fee": 5, "total": 20}, {"secrets": ("fee",)}, Amount("20", ""), id="nor of the question"),
    pytest.param(PRICED, {"fee": 5, "total": 20}, {"show": ("total",)}, Amount("20", ""), id="the one that is shown"),
    pytest.param(PRICED, {"total": 20}, {"show": ("to",)}, NO_AMOUNT, id="none that is not shown"),
    pytest.param(with_default("total", 9), {"to": "Ana"}, {}, Amount("9", ""), id="a default"),
    pytest.param(with_default("fee", 9), {"total": 20}, {}, Amount("20", ""), id="an argument before a default"),
    pytest.param(with_default("fee", 9), {"total": 20}, {"show": ("fee",)}, Amount("9", ""), id="a shown default"),
    pytest.param(with_default("currency", "USD"), {"total": 20}, {}, Amount("20", "USD"), id="a default currency"),
    pytest.param(PRICED, {"text": DIGITS}, {}, Amount(DIGITS, ""), id="a text of 80 characters"),
    pytest.param(PRICED, {"text": DIGITS + "7"}, {}, NO_AMOUNT, id="no longer text"),
    pytest.param(PRICED, {"order": {"total": 20}, "fee": None}, {}, NO_AMOUNT, id="no nested number, and no null"),
    pytest.param(PRICED, {"items": [20, 30], "total": 50}, {}, Amount("50", ""), id="not a list"),
)
def test_amount_of_a_call_is_drawn_as_on_its_card(
    declaration: dict[str, Any], args: dict[str, Any], fields: dict[str, Any], amount: Amount
) -> None:
    assert card_amount(a_question(**fields), declaration, args) == amount


def size(shown: Card) -> int:
    return len(shown.model_dump_json().encode())


def test_card_of_exactly_the_largest_size_shows_whole_values() -> None:
    args = {f"a{number}": "x" * CARD_VALUE_CHARS for number in range(22)}
    room = CARD_BYTES - size(card(args))
    largest = card(args, mark="m" * room)
    assert (size(largest), largest.whole) == (CARD_BYTES, True)
    assert not card(args, mark="m" * (room + 1)).whole


def test_shortened_card_of_exactly_the_largest_size_loses_no_row() -> None:
    args = {f"a{number}": "x" * CARD_VALUE_CHARS for number in range(ROWS)}
    room = CARD_BYTES - size(card(args))
    largest = card(args, mark="m" * room)
    assert (size(largest), len(largest.rows)) == (CARD_BYTES, ROWS)
    assert [row.format for row in card(args, mark="m" * (room + 1)).rows if not row.name] == ["missing"]


def test_defaults_are_shown_only_if_all_fit() -> None:
    fields = {f"a{number}": {"type": "string", "default": "x" * CARD_VALUE_CHARS} for number in range(22)}
    schema = {"properties": fields}
    room = CARD_BYTES - size(card({}, schema=schema))
    largest = card({}, schema=schema, mark="m" * room)
    assert (size(largest), len(largest.rows)) == (CARD_BYTES, 22)
    assert card({}, schema=schema, mark="m" * (room + 1)).rows == ()


def test_full_card_takes_no_default() -> None:
    args = {f"a{number}": number for number in range(ROWS)}
    assert [row.name for row in card(args, schema={"properties": {"z": {"default": 1}}}).rows] == list(args)


def test_rows_without_room_on_the_card_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    draw = card_module.leaf_line

    def counted(leaf: Any, *more: Any) -> Any:
        drawn.append(leaf.name)
        return draw(leaf, *more)

    monkeypatch.setattr(card_module, "leaf_line", counted)
    args = {f"a{number}": number for number in range(1_000)}
    card(args)
    assert drawn == list(args)[:ROWS]
