"""Compares the quoted part of a reply with the mails that we sent: other words there are the writer's.

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
"""The addresses and names of pictures that mail programs put into plain text."""
_MOST_WORDS: Final = 20_000
_WORD: Final = re.compile(r"\w+")


def sent_words(lines: Iterable[str]) -> str:
    """Return the words of a mail of ours, as `unsent_lines` compares them."""
    return " ".join(_words("\n".join(line for line in lines if not _is_frame(line))))


def unsent_lines(quoted: Sequence[str], sent: Sequence[str]) -> list[str]:
    """Return the quoted lines with words that are in none of the mails that we `sent`, in the order of that mail.

    Words may be missing: people cut what they quote.
    """
    found: list[str] = []
    for segment in _segments(quoted):
        each = [_compare(segment, words.split()) for words in (*sent, "")]
        fewest: list[str] = min(each, key=len)
        found += fewest
    return found


def _segments(lines: Sequence[str]) -> list[list[str]]:
    """Split quoted lines into those of each mail of ours."""
    found: list[list[str]] = [[]]
    for line in lines:
        if line.startswith(MARK):
            found.append([])
        if not _is_frame(line):
            found[-1].append(line)
    return found


def _compare(lines: Sequence[str], words: Sequence[str]) -> list[str]:
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, word in enumerate(words):
        places[word].append(place)
    found: list[str] = []
    at = 0
    for line in lines:
        until = at
        for word in _words(line):
            later = places[word]
            next_place = bisect_left(later, until)
            if next_place == len(later):
                found.append(line)
                break
            until = later[next_place] + 1
        else:
            at = until
    return found


def _is_frame(line: str) -> bool:
    """Return whether a line is our first or last one, with nothing added."""
    if line.startswith(END):
        return not _words(line)
    if not line.startswith(MARK):
        return False
    words = _words(line)
    return any(not _compare([line], _words(text("mail.above", language))) for language in language_codes()) or not words


def _words(line: str) -> list[str]:
    plain = unicodedata.normalize("NFKC", ADDED.sub(" ", line)).casefold()
    return _WORD.findall(plain)[:_MOST_WORDS]
