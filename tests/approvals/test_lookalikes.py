from collections.abc import Mapping
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from tables import table

from signoff.approvals.card import render_card
from signoff.approvals.card_notes import INVISIBLE, LOOKALIKES
from signoff.approvals.confirmation import is_confirmed
from signoff.approvals.unseen_values import every_value
from signoff.cli.terminal.card_lines import card_lines
from signoff.contracts.approval import Card
from signoff.formats.lookalikes import suspect_words
from signoff.languages.catalogue import language_codes, texts_of
from signoff.languages.remarks import english, remark_text
from signoff.testing import a_request

OPEN: Mapping[str, Any] = {"type": "object"}


def card(args: Mapping[str, Any], schema: Mapping[str, Any] = OPEN, effect: str = "") -> Card:
    return render_card(effect=effect, title="Set", tool="set", args=args, schema=schema)


def values(args: Mapping[str, Any], schema: Mapping[str, Any] = OPEN) -> list[str]:
    return [row.value for row in card(args, schema).rows]


@table(
    ("value", "text"),
    (True, "yes"),
    (5, "5"),
    ("yes", '"yes"'),
    ("True", '"True"'),
    ("5", '"5"'),
    ("1,000.50", '"1,000.50"'),
    ("1e5", '"1e5"'),
    ('"5"', '""5""'),
    ("null", '"null"'),
    ("Ana", "Ana"),
    ("5 seats", "5 seats"),
    ([5, "5", True, "no"], '5, "5", yes, "no"'),
)
def test_card_distinguishes_text_from_other_types_if_the_schema_allows_both(value: Any, text: str) -> None:
    both = {"type": "object", "properties": {"x": {"type": ["string", "number", "boolean", "array"]}}}
    union = {"type": "object", "properties": {"x": {"anyOf": [{"type": "string"}, {}]}}}
    for schema in (OPEN, both, union):
        assert values({"x": value}, schema) == [text]
    assert [each.text for each in every_value({"x": value}, OPEN, ())] == [text]


@table(
    "declared",
    {"type": "string"},
    {"type": ["string", "null"]},
    {"anyOf": [{"type": "string"}, {"type": "null"}]},
    {"enum": ["5", "yes"]},
)
def test_text_declared_by_the_schema_has_no_quotes(declared: Mapping[str, Any]) -> None:
    assert values({"x": "5"}, {"type": "object", "properties": {"x": declared}}) == ["5"]


def test_words_for_yes_and_no_differ_from_booleans_in_every_language() -> None:
    for language in language_codes():
        for key in ("value.yes", "value.no"):
            word = texts_of(language)[key]
            assert values({"x": word}) == [f'"{word}"'], language


@table(
    ("args", "suspects"),
    ({"to": "p\u0430ypal"}, {"p\u0430ypal"}),
    ({"to": "GO\u039fGLE"}, {"GO\u039fGLE"}),
    # Whole words, next to Latin ones.
    ({"to": "\u0440\u0430\u0443\u0440\u0430", "by": "Ana"}, {"\u0440\u0430\u0443\u0440\u0430"}),
    ({"to": "\u0430\u0440\u0440\u04cf\u0435.com"}, {"\u0430\u0440\u0440\u04cf\u0435"}),
    # Ordinary text: Russian, Greek, Chinese, Arabic, Armenian; and with Latin words.
    ({"to": "\u041e\u043f\u043b\u0430\u0442\u0438\u0442\u044c \u0421\u0430\u0440\u0430", "by": "Ana"}, set()),
    ({"to": "\u0421\u0430\u0440\u0430"}, set()),
    ({"to": "\u0391\u03b8\u03ae\u03bd\u03b1 \u03bf", "by": "Ana"}, set()),
    ({"to": "\u4ed8\u6b3e\u7ed9 Ana", "by": "\u062f\u0641\u0639 Ana"}, set()),
    ({"to": "\u0540\u0561\u0575\u0561\u057d\u057f\u0561\u0576", "by": "Ana"}, set()),
    ({"to": "M\u00fcller stra\u00dfe", "by": "Ana"}, set()),
    ({"to": "\u041e\u043f\u043b\u0430\u0442\u0438\u0442\u044c USB-\u043a\u0430\u0431\u0435\u043b\u044c"}, set()),
)
def test_words_with_mixed_alphabets_are_suspect_and_ordinary_text_is_not(
    args: Mapping[str, str], suspects: set[str]
) -> None:
    assert suspect_words(args.values()) == suspects
    assert (english(LOOKALIKES) in card(args).note) is bool(suspects)


def test_lookalike_letters_have_their_code_on_card_page_and_sentence() -> None:
    args = {"to": "p\u0430ypal", "list": ["GO\u039fGLE", "x"]}
    marked = "p\u0430\u27e6U+0430\u27e7ypal"
    found = card(args, effect="Pay {to}")
    assert found.effect == f"Pay {marked}"
    assert [row.value for row in found.rows] == [marked, "GO\u039f\u27e6U+039F\u27e7GLE, x"]
    assert next(each.text for each in every_value(args, OPEN, ())) == marked
    assert found.whole


def test_long_value_of_lookalikes_is_truncated_and_the_card_is_incomplete() -> None:
    found = card({"to": "p\u0430" * 240})
    assert not found.whole
    assert len(found.rows[0].value) <= 500
    assert not found.rows[0].value.endswith("\u27e6U+043\u2026")


@pytest.mark.parametrize("name", ["p\u0430yee"])
def test_undeclared_argument_name_with_lookalikes_has_their_codes(name: str) -> None:
    schema = {"type": "object", "properties": {"payee": {"type": "string"}}}
    assert "\u27e6U+0430\u27e7" in card({name: "Ana"}, schema).rows[0].label


@table(
    ("value", "noted"),
    ("Nordwind \u202ednil", True),
    ("zero\u200bwidth", True),
    ("two\nlines", False),
    ("N\u043erdwind", False),
    ("\u27e6U+202E\u27e7", False),
)
def test_invisible_characters_bring_a_note(value: str, noted: bool) -> None:
    assert (english(INVISIBLE) in card({"to": value, "name": "Nordwind"}).note) is noted


def test_invisible_characters_of_names_and_long_values_bring_a_note() -> None:
    assert english(INVISIBLE) in card({"to\u200b": "Ana"}).note
    assert english(INVISIBLE) in card({"to": "a" * 2_500 + "\u200b"}).note
    assert english(INVISIBLE) in card({"to": ["Ana", "Bo\u202e"]}).note
    assert english(INVISIBLE) not in card({"to": "1\u00a0234"}).note


def test_note_on_lookalikes_is_in_every_language() -> None:
    found = {remark_text(LOOKALIKES, language) for language in language_codes()}
    assert len(found) == len(language_codes()) == 6


def test_terminal_shows_the_codes_and_the_quotes() -> None:
    request = a_request(card=card({"to": "p\u0430ypal", "seats": "5"}))
    console = Console(width=200, record=True, file=StringIO())
    console.print(card_lines(request, datetime(2026, 3, 1, tzinfo=UTC)))
    shown = console.export_text()
    assert "p\u0430\u27e6U+0430\u27e7ypal" in shown
    assert '"5"' in shown
    assert english(LOOKALIKES) in shown


def test_text_in_quotes_is_typed_with_or_without_them() -> None:
    request = a_request(card=card({"seats": "5"}), confirm="type")
    assert all(is_confirmed(request, typed) for typed in ("5", '"5"'))
    assert not is_confirmed(request, "6")
