"""Finds words with letters of other alphabets that look Latin, such as a Cyrillic `a` in `paypal`.

A word is suspect if it mixes Latin letters with look-alikes. A word of look-alikes only is suspect if other words are
Latin, and no word shows that its alphabet is in use.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Final

LOOKALIKES: Final = frozenset(
    "\u037f\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03b1"  # Greek
    "\u03b3\u03b9\u03bd\u03bf\u03c1\u03c3\u03c5\u03dc\u03f3\u03fa\u1d26"
    "\u0405\u0406\u0408\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u042c"  # Cyrillic
    "\u0430\u0433\u0435\u043e\u0440\u0441\u0443\u0445\u0455\u0456\u0458\u0461\u0474\u0475\u04ae\u04af"
    "\u04bb\u04bd\u04c0\u04cf\u0501\u050c\u051b\u051c\u051d\ua647"
    "\u13a0\u13a1\u13a2\u13a5\u13a9\u13aa\u13ab\u13ac\u13b3\u13b7\u13bb\u13bd\u13c0\u13c2\u13c3\u13cf"  # Cherokee
    "\u13d2\u13d4\u13d5\u13d9\u13da\u13de\u13df\u13e2\u13e6\u13e7\u13f3\u13f4\uab75\uab81\uab83\uab93"
    "\uaba9\uabaa\uabaf"
    "\u142f\u144c\u146d\u146f\u1472\u148d\u14aa\u1541\u157c\u157d\u1587\u15af\u15b4\u15c5\u15de\u15ea"  # Canadian
    "\u15f0\u15f7"
    "\ua4d0\ua4d1\ua4d2\ua4d3\ua4d4\ua4d6\ua4d7\ua4d9\ua4da\ua4dc\ua4dd\ua4df\ua4e0\ua4e1\ua4e2\ua4e3"  # Lisu
    "\ua4e6\ua4e7\ua4ea\ua4eb\ua4ec\ua4ee\ua4f0\ua4f2\ua4f3\ua4f4"
    "\u2c85\u2c8e\u2c92\u2c94\u2c98\u2c9a\u2c9e\u2c9f\u2ca2\u2ca3\u2ca4\u2ca5\u2ca6\u2ca8\u2cac\u2cd0"  # Coptic
    "\u054d\u054f\u0555\u0561\u0563\u0566\u0570\u0578\u057c\u057d\u0581\u0584\u0585"  # Armenian
    "\u10e7\u10ff"  # Georgian
    "\U00010404\U00010415\U0001041b\U00010420\U0001042c\U0001043d\U00010448"  # Deseret
    "\u16b7\u16c1\u16d5\u16d6"  # Runic
    "\u2d38\u2d39\u2d4f\u2d54\u2d55\u2d5d"  # Tifinagh
    "\U000104b4\U000104c2\U000104ce\U000104ea\U000104f6"  # Osage
)
"""Letters that Unicode's confusables (UTS 39) map to an ASCII letter.

Only alphabets that screens can draw are included.
"""
_LATIN: Final = "LATIN"
_WORD: Final = re.compile(r"[^\W_]+")


def suspect_words(texts: Iterable[str]) -> frozenset[str]:
    """`texts` are the values of one call."""
    words = {word for text in texts for word in _WORD.findall(text)}
    alphabets = {word: _alphabets(word) for word in words}
    is_latin = any(found == {_LATIN} for found in alphabets.values())
    # A letter without a Latin look-alike shows that the alphabet is intended.
    in_use = {name for word, found in alphabets.items() if _LATIN not in found and _has_own(word) for name in found}
    return frozenset(
        word
        for word, found in alphabets.items()
        if not word.isascii()
        and not LOOKALIKES.isdisjoint(word)
        and (_LATIN in found or (is_latin and not _has_own(word) and in_use.isdisjoint(found)))
    )


def mark_words(line: str, suspects: Collection[str]) -> str:
    """Add the code after each look-alike letter of the `suspects`. `line` is visible text."""
    if not suspects or line.isascii():
        return line
    return _WORD.sub(lambda found: _mark(found[0]) if found[0] in suspects else found[0], line)


def _mark(word: str) -> str:
    return "".join(f"{char}\u27e6U+{ord(char):04X}\u27e7" if char in LOOKALIKES else char for char in word)


def _has_own(word: str) -> bool:
    return any(char.isalpha() and char not in LOOKALIKES for char in word)


def _alphabets(word: str) -> set[str]:
    return {_alphabet(char) for char in word if char.isalpha()}


@lru_cache(maxsize=4_096)
def _alphabet(char: str) -> str:
    name = unicodedata.name(char, "")
    return _LATIN if _LATIN in name else name.partition(" ")[0]
