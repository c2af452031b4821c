import hashlib

import pytest

from signoff.approvals import unseen_values
from signoff.approvals.argument_rows import ArgumentLeaf
from signoff.approvals.card import render_card
from signoff.approvals.unseen_values import FILE_CHARS, ValuePages, every_value, seen_hash
from signoff.contracts.approval import Card
from signoff.contracts.limits import VALUES_PER_PAGE
from signoff.formats.visible_text import VisibleLine


def drawn(args: dict[str, object], **fields: object) -> Card:
    given = {"effect": "", "title": "", "tool": "order", "args": args, "schema": {}} | fields
    return render_card(**given)  # type: ignore[arg-type]


def test_card_is_complete_only_with_every_value_in_full() -> None:
    assert drawn({"to": "Ana", "amount": 3}).whole
    assert drawn({}).whole
    assert drawn({"to": "Ana", "pin": "1" * 900}, secrets=("pin",)).whole
    assert not drawn({"items": [{"n": n} for n in range(16)]}).whole
    assert not drawn({"text": "x" * 501}).whole
    assert not drawn({"k" * 81: 1}).whole
    assert not drawn({"to": "Ana", "amount": 3}, show=("to",)).whole


def test_every_value_is_shown_in_full_except_secrets() -> None:
    text = "first\nsecond\u202e" + "é" * 3_000
    values = every_value({"text": text, "pin": "4711", "memo": "pin 4711", "k" * 99: [{"n": 1}]}, {}, ("pin",))
    by_name = {value.name: value for value in values}
    assert by_name["text"].text == "first⏎\nsecond⟦U+202E⟧" + "é" * 3_000
    raw = text.encode()
    assert (by_name["text"].size, by_name["text"].sha256) == (len(raw), hashlib.sha256(raw).hexdigest())
    assert by_name["pin"].secret
    assert not any("4711" in value.text for value in values)
    assert by_name["k" * 99 + ".0.n"].text == "1"


def test_secret_value_and_empty_name_are_marked() -> None:
    values = every_value({"": 1, "pin": "4711"}, {}, ("pin",))
    assert [(value.name, value.text) for value in values] == [('""', "1"), ("pin", "hidden")]


def test_long_text_has_size_and_hash() -> None:
    short, long = "x" * (FILE_CHARS - 1), "x" * (FILE_CHARS - 1) + "\ud800"
    values = every_value({"short": short, "long": long}, {}, ())
    assert [(value.size, bool(value.sha256)) for value in values] == [(0, False), (FILE_CHARS + 2, True)]
    assert values[1].sha256 == hashlib.sha256(long.encode("utf-8", "surrogatepass")).hexdigest()


def test_pages_contain_every_value_once() -> None:
    count = 2 * VALUES_PER_PAGE + 1
    pages = ValuePages({f"n{n}": n for n in range(count)}, {}, ())
    assert [len(page) for page in pages] == [VALUES_PER_PAGE, VALUES_PER_PAGE, 1]
    assert [value.name for page in pages for value in page] == [f"n{n}" for n in range(count)]
    assert (len(pages), pages.total) == (3, count)


def test_only_the_requested_page_is_formatted(monkeypatch: pytest.MonkeyPatch) -> None:
    formatted: list[str] = []

    def format_leaf(leaf: ArgumentLeaf, *_: object) -> VisibleLine:
        formatted.append(leaf.name)
        return VisibleLine("", 0)

    monkeypatch.setattr(unseen_values, "leaf_line", format_leaf)
    pages = ValuePages({f"n{n}": n for n in range(VALUES_PER_PAGE + 1)}, {}, ())
    assert (len(pages), formatted) == (2, [])
    assert len(pages[1]) == 1
    assert formatted == [f"n{VALUES_PER_PAGE}"]


def test_arguments_without_a_value_have_one_empty_page() -> None:
    assert list(ValuePages({}, {}, ())) == [[]]


def test_proof_is_bound_to_one_question_and_its_values() -> None:
    proofs = {seen_hash("a", {"n": 1}), seen_hash("b", {"n": 1}), seen_hash("a", {"n": 2})}
    assert len(proofs) == 3
    assert seen_hash("a", {"n": 1.0}) in proofs
