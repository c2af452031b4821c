import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.formats.visible_text import VisibleLine, number, one_line, scalar_line, whole_line

ANY_TEXT = st.text(alphabet=st.characters(), max_size=80) | st.text(
    alphabet="\u202e\u200b\ufeff\u2066\u0000\r\n\t\u2028⟦⟧⏎…\u0301\ufe0f\u3164\ud800a", max_size=80
)


@table(
    ("text", "shown"),
    ("Lisbon", "Lisbon"),
    ("東京 São Tomé 🛫", "東京 São Tomé 🛫"),
    ("100\u202e.00", "100⟦U+202E⟧.00"),
    ("pay\u200bpal", "pay⟦U+200B⟧pal"),
    ("a\u2066b\u2069\ufeff", "a⟦U+2066⟧b⟦U+2069⟧⟦U+FEFF⟧"),
    ("a\tb\0\x1b[31m\x7f", "a⟦U+0009⟧b⟦U+0000⟧⟦U+001B⟧[31m⟦U+007F⟧"),
    ("one\ntwo\r\nthree\rfour\u2028five", "one⏎two⏎three⏎four⏎five"),
    ("\ud800", "⟦U+D800⟧"),
    ("\u3164\u115f\u2800", "⟦U+3164⟧⟦U+115F⟧⟦U+2800⟧"),
    ("\U000e0041\U000e0100\ufe0f", "⟦U+E0041⟧⟦U+E0100⟧⟦U+FE0F⟧"),
    ("⟦U+202E⟧ ⏎", "⟦U+27E6⟧U+202E⟦U+27E7⟧ ⟦U+23CE⟧"),
    ("a" + "\u20dd" * 5, "a" + "\u20dd" * 4 + "⟦U+20DD⟧"),
    ("\u0301" * 5, "\u0301" * 4 + "⟦U+0301⟧"),
    ("e\u0301" + "\u0301" * 5, "e" + "\u0301" * 4 + "⟦U+0301⟧" * 2),
)
def test_hidden_characters_are_shown_and_readable_ones_stay(text: str, shown: str) -> None:
    assert one_line(text, 500) == VisibleLine(shown, len(text))


@given(text=ANY_TEXT, limit=st.integers(2, 40))
def test_any_text_becomes_one_short_clean_line(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line.text) <= limit
    assert line.length == len(text)
    assert not {unicodedata.category(char) for char in line.text} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert line.text.count("⟦") == line.text.count("⟧")
    line.text.encode()


@given(text=ANY_TEXT)
def test_different_texts_have_different_lines(text: str) -> None:
    marks = one_line(text, 2_000)
    plain = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    read = marks.text.replace("⏎", "\n")
    for char in set(plain):
        read = read.replace(f"⟦U+{ord(char):04X}⟧", char) if char not in "⟦⟧" else read
    assert not marks.cut
    assert read.replace("⟦U+27E6⟧", "⟦").replace("⟦U+27E7⟧", "⟧") == plain


@table(
    ("text", "limit", "shown"),
    ("abcdef", 6, "abcdef"),
    ("abcdefg", 6, "abcde…"),
    ("ab\u202ecd", 10, "ab…"),
    ("\u202e" * 9, 5, "…"),
    ("\r\n" * 6, 5, "⏎⏎⏎⏎…"),
)
def test_cut_falls_between_characters(text: str, limit: int, shown: str) -> None:
    assert one_line(text, limit) == VisibleLine(shown, len(text), cut=shown != text)


@table(
    ("value", "shown"),
    (420, "420"),
    (420.0, "420"),
    (420.5, "420.5"),
    (-0.0, "0"),
    (0.1 + 0.2, "0.30000000000000004"),
    (1e-7, "0.0000001"),
    (1_000_000.0, "1000000"),
    (1e20, "100000000000000000000"),
    (1e21, "1e+21"),
    (-1e21, "-1e+21"),
    (1e22, "1e+22"),
    pytest.param(2**1024 - 1, str(2**1024 - 1), id="1024 bits"),
    pytest.param(2**1024, "an integer of 1025 bits", id="1025 bits"),
    (float("nan"), "nan"),
    (float("-inf"), "-inf"),
    (-(10**30), "-1000000000000000000000000000000"),
    pytest.param(10**5_000, "an integer of 16610 bits", id="huge"),
)
def test_numbers_are_written_without_an_exponent(value: float, shown: str) -> None:
    assert number(value) == shown


@table(("value", "shown"), (True, "yes"), (False, "no"), (None, "⟦none⟧"), ("", "⟦empty⟧"), ("None", "None"), (7, "7"))
def test_empty_values_differ_from_any_text(value: object, shown: str) -> None:
    assert scalar_line(value, 50).text == shown


@table(
    ("value", "line"),
    ("", VisibleLine("⟦empty⟧", 0)),
    (None, VisibleLine("⟦none⟧", 0)),
    ("ab", VisibleLine("ab", 2)),
    ((1, 2), VisibleLine("(1, 2)", 6)),
)
def test_scalar_line_records_its_length(value: object, line: VisibleLine) -> None:
    assert scalar_line(value, 50) == line


@given(st.text())
def test_whole_line_is_never_cut(text: str) -> None:
    assert whole_line(text) == one_line(text, 10 * len(text) + 2).text
    assert whole_line("GET /v1?a=1 ~") == "GET /v1?a=1 ~"
