"""Writes SMS in the GSM 7-bit alphabet, of which a segment holds 153 characters; of UCS-2 it holds 67."""

import math
from typing import Final

_BASIC: Final = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§"
    "¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
_EXTENDED: Final = frozenset("\f^{}\\[~]|€")
"""Characters that take the room of two."""
# Not the marks of `visible_text` and no dash: a value could otherwise be taken for a missing one.
_PLAIN: Final = str.maketrans(
    {
        **dict.fromkeys("“”„‟«»", '"'),
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u00a0\u2009\u202f", " "),
        "…": "...",
        "•": "-",
    }
)
_ONE: Final = 160
_PART: Final = 153
_UCS2_ONE: Final = 70
_UCS2_PART: Final = 67


def plain_quotes(words: str) -> str:
    """Return `words` with plain quotes and spaces if the alphabet then has every character, else unchanged."""
    plain = words.translate(_PLAIN)
    return plain if _septets(plain) is not None else words


def segments(words: str) -> int:
    """Return the number of segments that carriers send and bill for `words`."""
    septets = _septets(words)
    if septets is not None:
        return 1 if septets <= _ONE else math.ceil(septets / _PART)
    units = len(words.encode("utf-16-le", "surrogatepass")) // 2
    return 1 if units <= _UCS2_ONE else math.ceil(units / _UCS2_PART)


def _septets(words: str) -> int | None:
    if not set(words) <= _BASIC | _EXTENDED:
        return None
    return len(words) + sum(char in _EXTENDED for char in words)
