"""Writes the remarks that are made below the pages, in English, in the language of whoever reads them.

Models, programs and terminals read them as they are made: notes on cards, problems of arguments, why nothing was
changed. The catalogue holds each under its English text; a remark that it does not have, such as one of a tool's own
author, stays as it is.
"""

import re
from functools import cache
from typing import Final, NamedTuple

from signoff.languages.catalogue import ENGLISH, text, texts_of

REMARK_CHARS: Final = 2_000
"""Longer remarks stay as they are: none of ours is, and whoever writes one chooses how long readers wait for it."""
_NESTED: Final = 2
"""How deep a remark holds another: `The arguments do not fit the schema: every line must be ...`."""
_PREFIX: Final = "remark."
_WHAT: Final = "what"
"""The place of a text that holds another remark."""
_PLACE: Final = re.compile(r"\{(\w+)\}")
_OF_PLACE: Final = re.compile(r"(?P<place>`[^`]*`) (?P<what>.+)", re.DOTALL)
_JOINT: Final = "; "


class _Pattern(NamedTuple):
    """A text with places; reads their values out of a remark."""

    pieces: tuple[str, ...]
    """The text between its places."""
    names: tuple[str, ...]
    """Its places."""

    def values(self, remark: str) -> dict[str, str] | None:
        """Returns the values, each as short as can be and none of them empty; None for another remark.

        Looks at each character once or twice: a regular expression tried every way to part a remark among its places.
        """
        first, *others = self.pieces
        if not others:
            return {} if remark == first else None
        if not remark.startswith(first):
            return None
        found: dict[str, str] = {}
        begin = len(first)
        for name, piece in zip(self.names[:-1], others[:-1], strict=True):
            end = remark.find(piece, begin + 1)
            if end < 0:
                return None
            found[name] = remark[begin:end]
            begin = end + len(piece)
        end = len(remark) - len(others[-1])
        if end <= begin or not remark.endswith(others[-1]):
            return None
        return found | {self.names[-1]: remark[begin:end]}


def remark_words(remark: str, language: str) -> str:
    """Returns a remark, or several joined by `; `, in `language`; whatever the catalogue lacks stays as it is."""
    if language == ENGLISH or len(remark) > REMARK_CHARS:
        return remark
    return _words(remark, language, 0)


def _words(remark: str, language: str, depth: int) -> str:
    if depth > _NESTED or not remark:
        return remark
    whole = _one(remark, language, depth)
    if whole is not None or _JOINT not in remark:
        return whole or remark
    return _JOINT.join(_one(each, language, depth) or each for each in remark.split(_JOINT))


def _one(remark: str, language: str, depth: int) -> str | None:
    if (whole := _whole(remark, language, depth)) is not None:
        return whole
    within = _OF_PLACE.fullmatch(remark)
    what = None if within is None else _whole(within["what"], language, depth)
    return None if within is None or what is None else f"{within['place']} {what}"


def _whole(remark: str, language: str, depth: int) -> str | None:
    for key, pattern in _patterns():
        found = pattern.values(remark)
        if found is not None:
            if _WHAT in found:
                found[_WHAT] = _words(found[_WHAT], language, depth + 1)
            return text(key, language, **found)
    return None


@cache
def _patterns() -> tuple[tuple[str, _Pattern], ...]:
    """Returns key and pattern of each remark, those with the most words of their own first: others could match too."""
    written = [(key, words) for key, words in texts_of(ENGLISH).items() if key.startswith(_PREFIX)]
    order = sorted(written, key=lambda each: -len(_PLACE.sub("", each[1])))
    return tuple((key, _pattern(words)) for key, words in order)


def _pattern(words: str) -> _Pattern:
    pieces = _PLACE.split(words)
    return _Pattern(tuple(pieces[::2]), tuple(pieces[1::2]))
