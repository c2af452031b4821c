"""Makes lines of text and of differences for previews, without hidden characters. Pure."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from signoff.formats.visible_text import one_line

LINE_CHARS: Final = 400
"""Longest line in characters, for pages and terminals."""
_CONTEXT_LINES: Final = 3
_COMPARED_LINES: Final = 1_000
"""Longer texts are shown as replaced: comparing them takes too long."""
_TAB: Final = 4

Tone = Literal["", "was", "now", "gap"]


@dataclass(frozen=True)
class PreviewLine:
    """One line of a text or of a difference."""

    text: str
    tone: Tone = ""
    """`was`: only before, `now`: only after, `gap`: equal lines are left out here."""


def text_lines(text: str) -> list[PreviewLine]:
    return list(_toned(text.splitlines(), ""))


def changed_lines(before: str, after: str) -> list[PreviewLine]:
    """Return the changed lines with the equal lines around them."""
    return list(_changes(before.splitlines(), after.splitlines()))


def _changes(before: Sequence[str], after: Sequence[str]) -> Iterator[PreviewLine]:
    if max(len(before), len(after)) > _COMPARED_LINES:
        yield from _toned(before, "was")
        yield from _toned(after, "now")
        return
    matcher = difflib.SequenceMatcher(None, before, after)
    for number, group in enumerate(matcher.get_grouped_opcodes(_CONTEXT_LINES)):
        if number:
            yield PreviewLine("", "gap")
        for tag, was, was_end, now, now_end in group:
            if tag == "equal":
                yield from _toned(before[was:was_end], "")
                continue
            yield from _toned(before[was:was_end], "was")
            yield from _toned(after[now:now_end], "now")


def _toned(lines: Sequence[str], tone: Tone) -> Iterator[PreviewLine]:
    for line in lines:
        yield PreviewLine(_visible(line), tone)


def _visible(line: str) -> str:
    return one_line(line.expandtabs(_TAB), LINE_CHARS).text
