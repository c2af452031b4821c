"""Writes the remarks that are made below the pages, in English, in the language of whoever reads them.

Models, programs and terminals read them as they are made: notes on cards, problems of arguments, why nothing was
changed. The catalogue holds each under its English text; a remark that it does not have, such as one of a tool's own
author, stays as it is.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from signoff.texts.catalogue import ENGLISH, text, texts_of

_PREFIXES: Final = ("remark.", "value.hidden")
_WHAT: Final = "what"
"""The place of a text that holds another remark."""
_PLACE: Final = re.compile(r"\{(\w+)\}")
_OF_PLACE: Final = re.compile(r"(?P<place>`[^`]*`) (?P<what>.+)", re.DOTALL)
_JOINT: Final = "; "


def remark_words(remark: str, language: str) -> str:
    """Returns a remark, or several joined by `; `, in `language`; whatever the catalogue lacks stays as it is."""
    if language == ENGLISH or not remark:
        return remark
    whole = _one(remark, language)
    if whole is not None or _JOINT not in remark:
        return whole or remark
    return _JOINT.join(_one(each, language) or each for each in remark.split(_JOINT))


def _one(remark: str, language: str) -> str | None:
    for key, pattern in _patterns().items():
        found = pattern.fullmatch(remark)
        if found is not None:
            return text(key.removesuffix(".one"), language, **_values(found.groupdict(), language))
    within = _OF_PLACE.fullmatch(remark)
    what = None if within is None else _one(within["what"], language)
    return None if within is None or what is None else f"{within['place']} {what}"


def _values(found: Mapping[str, str], language: str) -> dict[str, object]:
    return {name: _value(name, value, language) for name, value in found.items()}


def _value(name: str, value: str, language: str) -> object:
    if name == _WHAT:
        return remark_words(value, language)
    # As a number it takes the singular where it is one.
    return int(value) if name == "n" and value.isascii() and value.isdecimal() and len(value) < 10 else value


@cache
def _patterns() -> Mapping[str, re.Pattern[str]]:
    """Returns a pattern for each remark, those with the most words of their own first: others could match as well."""
    written = {key: words for key, words in texts_of(ENGLISH).items() if key.startswith(_PREFIXES)}
    order = sorted(written, key=lambda key: -len(_PLACE.sub("", written[key])))
    return {key: re.compile(_pattern(written[key]), re.DOTALL) for key in order}


def _pattern(words: str) -> str:
    pieces = _PLACE.split(words)
    return "".join(f"(?P<{piece}>.+?)" if at % 2 else re.escape(piece) for at, piece in enumerate(pieces))
