"""Compares the quoted part of a reply with the emails that Signoff sent.

Outlook marks no quote, so a comment or a changed value inside the quoted card looks like the card itself.
"""

import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from signoff.channels.answer_text.quotes import END, MARK
from signoff.languages.catalogue import language_codes, text

ADDED: Final = re.compile(
    r"<[^<>\s]{1,2000}>|\[(?:cid|image):[^\[\]]{0,200}\]|\[[^\[\]\s]{1,200}\.(?:png|jpe?g|gif)\]"
    r"|(?:https?://|mailto:)\S{1,2000}"
)
"""The addresses and image names that email clients put into plain text."""
_MOST_WORDS: Final = 20_000
_WORD: Final = re.compile(r"\w+")


def sent_words(lines: Iterable[str]) -> str:
    """Return the words as `unsent_lines` compares them."""
    return " ".join(_words("\n".join(line for line in lines if not _is_frame(line))))


def unsent_lines(quoted: Sequence[str], sent: Sequence[str]) -> list[str]:
    """Return the quoted lines that have words not in any of the `sent` emails, in the order of that email.

    Words may be missing: people shorten quotes.
    """
    unsent: list[str] = []
    for segment in _segments(quoted):
        each = [_compare(segment, words.split()) for words in (*sent, "")]
        fewest: list[str] = min(each, key=len)
        unsent += fewest
    return unsent


def _segments(lines: Sequence[str]) -> list[list[str]]:
    """Group quoted lines by the email from Signoff that they quote."""
    segments: list[list[str]] = [[]]
    for line in lines:
        if line.startswith(MARK):
            segments.append([])
        if not _is_frame(line):
            segments[-1].append(line)
    return segments


def _compare(lines: Sequence[str], words: Sequence[str]) -> list[str]:
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, word in enumerate(words):
        places[word].append(place)
    unsent: list[str] = []
    at = 0
    for line in lines:
        until = at
        for word in _words(line):
            later = places[word]
            next_place = bisect_left(later, until)
            if next_place == len(later):
                unsent.append(line)
                break
            until = later[next_place] + 1
        else:
            at = until
    return unsent


def _is_frame(line: str) -> bool:
    """Return whether a line is an email's first or last one, with nothing added."""
    if line.startswith(END):
        return not _words(line)
    if not line.startswith(MARK):
        return False
    words = _words(line)
    return any(not _compare([line], _words(text("mail.above", language))) for language in language_codes()) or not words


def _words(line: str) -> list[str]:
    plain = unicodedata.normalize("NFKC", ADDED.sub(" ", line)).casefold()
    return _WORD.findall(plain)[:_MOST_WORDS]
