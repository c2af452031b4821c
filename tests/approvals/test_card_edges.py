from typing import Any

from tables import table

from signoff.approvals.approval_book import read_decision
from signoff.approvals.argument_rows import find, is_secret, plural, value_line
from signoff.approvals.card import CARD_BYTES, render_card
from signoff.contracts.approval import Card, CardRow
from signoff.contracts.limits import EFFECT_CHARS
from signoff.formats.visible_text import VisibleLine


def card(args: dict[str, Any], **more: Any) -> Card:
    plain: dict[str, Any] = {"effect": "", "title": "", "tool": "book_flight", "schema": {}}
    return render_card(**{**plain, "args": args, **more})


def effect(template: str, args: dict[str, Any]) -> str:
    return card(args, effect=template).effect


def test_card_without_arguments_has_only_its_title() -> None:
    assert card({}) == Card(effect="book_flight", tool_title="book_flight")
    named = card({}, title="Book a flight", notes=("n",), agent_says="a", mark="m")
    assert named == Card(
        effect="Book a flight", tool_title="Book a flight", note="n", notes=("n",), agent_says="a", mark="m"
    )


def test_row_contains_all_facts_of_a_value() -> None:
    schema = {"properties": {"when": {"type": "string", "format": "date", "title": "Day"}}}
    shown = card({"when": "2027-01-01", "b": 1}, schema=schema, show=["when"])
    assert shown.rows == (
        CardRow(name="when", label="Day", value="2027-01-01", length=10, format="date"),
        CardRow(name="", label="", value="1 more not shown", length=1, format="more"),
    )


@table(
    ("value", "limit", "line"),
    ([], 9, VisibleLine("⟦empty⟧", 0)),
    ({}, 9, VisibleLine("⟦empty⟧", 0)),
    (["ab"], 2, VisibleLine("ab", 2)),
    (["abc"], 2, VisibleLine("1 value", 0)),
    (["a", "b"], 3, VisibleLine("2 values", 0)),
    ({"a": 1}, 99, VisibleLine("1 value", 0)),
)
def test_container_is_shown_on_one_line(value: Any, limit: int, line: VisibleLine) -> None:
    assert value_line(value, limit) == line


@table(("count", "words"), (0, "0 values"), (1, "1 value"), (2, "2 values"))
def test_singular_is_used_for_one(count: int, words: str) -> None:
    assert plural(count, "value") == words


def test_index_has_at_most_six_digits() -> None:
    assert is_secret("l.100000.pin", {"l.pin"})
    assert not is_secret("l.1000000.pin", {"l.pin"})
    assert find({"a": [7, 8]}, "a.000001", None) == 8
    assert find({"a": [7, 8]}, "a.0000001", None) is None


def test_values_of_a_sentence_share_its_room() -> None:
    two = effect("A" * 100 + "{a} {b}", {"a": "y" * 80, "b": "z" * 80})
    assert two == "A" * 100 + "y" * 48 + "… " + "z" * 48 + "…"
    assert effect("A" * 100 + "{a}", {"a": "y" * 80}) == "A" * 100 + "y" * 80
    assert effect("{a}", {"a": "y" * 81}) == "y" * 79 + "…"


def test_arguments_in_a_sentence_without_a_template_are_short() -> None:
    assert effect("", {"k" * 20: "v" * 30}) == f"book_flight: {'k' * 20} {'v' * 30}"
    assert effect("", {"k" * 21: "v" * 31}) == f"book_flight: {'k' * 19}… {'v' * 29}…"


def test_value_in_a_sentence_has_at_least_twelve_characters() -> None:
    assert effect("{ a }" + "x" * 185, {"a": "y" * 12}) == "y" * 12 + "x" * 185
    assert effect("{a}" + "x" * 185, {"a": "y" * 16}) == "y" * 14 + "…" + "x" * 185
    assert effect("{a}" + "x" * 188, {"a": "y" * 12}) == "y" * 12 + "x" * 188
    assert effect("{a}" + "x" * 188, {"a": "y" * 13}) == "y" * 11 + "…" + "x" * 188


def test_each_text_of_the_card_is_truncated_at_its_own_limit() -> None:
    shown = card({"k" * 80: 1, "n" * 81: 2}, title="t" * 121, notes=["n" * 301])
    assert shown.tool_title == "t" * 119 + "…"
    assert shown.note == "n" * 299 + "…"
    assert [(row.name, row.label, row.cut) for row in shown.rows] == [
        ("k" * 80, "K" + "k" * 79, False),
        ("n" * 79 + "…", "N" + "n" * 78 + "…", True),
    ]
    whole = card({}, title="t" * 120, notes=["n" * 300])
    assert (whole.tool_title, whole.note) == ("t" * 120, "n" * 300)


def test_counting_row_has_its_kind_and_number() -> None:
    shown = card({"to": {str(number): number for number in range(17)}})
    assert shown.rows[-1] == CardRow(name="", label="to", value="2 more of to not shown", length=2, format="more_of")
    full = card({f"a{number}": number for number in range(61)})
    assert [row.name for row in full.rows[:-1]] == [f"a{number}" for number in range(60)]
    missing = "this card is incomplete: 1 value is missing"
    assert full.rows[-1] == CardRow(name="", label="", value=missing, length=1, format="missing")


def test_values_in_a_dropped_counting_row_count_as_missing() -> None:
    args = {f"a{number}": {str(each): each for each in range(20)} for number in range(4)}
    shown = card(args)
    assert [row.format for row in shown.rows if not row.name] == ["more_of"] * 3 + ["missing"]
    assert shown.rows[-1].length == 80 - 3 * 20 - 12


def test_sentence_is_truncated_at_its_last_character() -> None:
    assert effect("x" * 150 + "{a}" + "y" * 49, {"a": "1"}) == "x" * 150 + "1" + "y" * 49
    assert effect("x" * 150 + "{a}" + "y" * 50, {"a": "1"}) == "x" * 150 + "1" + "y" * 48 + "…"


def test_truncated_sentence_keeps_complete_marks() -> None:
    mark = "⟦U+202E⟧"
    split = effect("{a}" + "x" * 187 + "{a}", {"a": "\u202e"})
    assert split == mark + "x" * 187 + "…"
    whole = effect("{a}" + "x" * 50 + "{a}" + "y" * 140, {"a": "\u202e"})
    assert whole == (mark + "x" * 50 + mark + "y" * 140)[: EFFECT_CHARS - 1] + "…"


def test_error_deep_in_a_decision_is_named_by_its_path() -> None:
    found = read_decision(({"approval_id": "a", "verdict": "denied", "edited_args": {1: 2}},))
    assert found.message == "`edited_args.1.[key]`: input should be a valid string"


def test_incomplete_card_uses_all_its_room() -> None:
    shown = card({f"a{n}": "🛫" * 600 for n in range(400)})
    last = [row for row in shown.rows if row.name][-1]
    assert len(shown.model_dump_json().encode()) + len(last.model_dump_json().encode()) + 1 > CARD_BYTES
