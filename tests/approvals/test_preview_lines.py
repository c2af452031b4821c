from tables import table

from signoff.approvals.previews.lines import LINE_CHARS, PreviewLine, changed_lines, text_lines

LARGEST = 1_000
"""The number of lines that are compared."""


def numbered(count: int, **changed: str) -> str:
    return "\n".join(changed.get(f"line{number}", str(number)) for number in range(count))


def test_changed_lines_are_between_the_equal_lines_around_them() -> None:
    assert changed_lines("a\nb\nc\nd", "a\nx\nc\nd\ne") == [
        PreviewLine("a", ""),
        PreviewLine("b", "was"),
        PreviewLine("x", "now"),
        PreviewLine("c", ""),
        PreviewLine("d", ""),
        PreviewLine("e", "now"),
    ]


def test_equal_lines_far_from_a_change_are_left_out() -> None:
    shown = changed_lines(numbered(20), numbered(20, line4="x", line15="y"))
    assert [(each.text, each.tone) for each in shown] == [
        *((text, "") for text in "123"), ("4", "was"), ("x", "now"), *((text, "") for text in "567"),
        ("", "gap"),
        *((text, "") for text in ("12", "13", "14")), ("15", "was"), ("y", "now"),
        *((text, "") for text in ("16", "17", "18")),
    ]  # fmt: skip


def test_equal_texts_have_no_changed_lines() -> None:
    assert changed_lines("a\nb", "a\nb") == []


@table(("count", "shown"), (LARGEST, 8), (LARGEST + 1, 2 * (LARGEST + 1)))
def test_texts_above_the_limit_are_shown_as_replaced(count: int, shown: int) -> None:
    lines = changed_lines(numbered(count), numbered(count, line500="x"))
    assert len(lines) == shown
    assert [each.tone for each in lines].count("was") == [each.tone for each in lines].count("now")


def test_lines_of_a_text_show_hidden_characters_and_are_bounded() -> None:
    assert text_lines("a\tb\nc\u202e") == [PreviewLine("a   b", ""), PreviewLine("c\u27e6U+202E\u27e7", "")]
    (long,) = text_lines("x" * (LINE_CHARS + 1))
    assert long.text == "x" * (LINE_CHARS - 1) + "…"
