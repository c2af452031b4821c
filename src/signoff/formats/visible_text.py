"""Shows untrusted values as one line of honest text.

Invisible or reversing characters become marks.
"""

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final, NamedTuple

ELLIPSIS: Final = "…"
MISSING: Final = "—"
NEWLINE: Final = "⏎"
MARK: Final = "⟦"
"""The start of the mark of an invisible character."""
_LINE_ENDS = frozenset("\n\r\u2028\u2029")
_OWN_MARKS = frozenset("⟦⟧⏎")
# Include Cn: another program may draw anything for a character that this Python does not know.
_HIDDEN_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Co", "Cn"))
# Drawn as nothing, although they are letters or combining marks by category.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
# Many marks on one letter are drawn over the lines above and below.
_MAX_COMBINING = 4
_MAX_INTEGER_BITS = 1024
# From here on, RFC 8785 (section 3.2.2.3, like ECMAScript) also writes an exponent.
_POSITIONAL_BELOW = 1e21
_MARK: Final = re.compile(r"(⟦(?:U\+[0-9A-F]{4,6}|empty|none)⟧|⏎)")
_ATOM: Final = re.compile(rf"(?:{_MARK.pattern})|.", re.DOTALL)
_MARK_CHARS: Final = 10
"""The longest mark: `⟦U+10FFFF⟧`."""


class VisibleLine(NamedTuple):
    """One line of text, the full length of its value in characters, and whether it is cut."""

    text: str
    length: int
    cut: bool = False


def one_line(text: str, limit: int) -> VisibleLine:
    """Return `text` on one line of at most `limit` characters, including marks, cut with `…`.

    `limit` is at least 2. Never cuts inside a mark. Control, bidirectional and zero-width characters become `⟦U+202E⟧`,
    line ends `⏎`. The same happens to these marks, so that no text can forge one.
    """
    pieces: list[str] = []
    used = 0
    # Read no more than can be shown. Only CR LF combines two characters into one.
    for piece in _pieces(text[: 2 * limit + 2].replace("\r\n", "\n")):
        pieces.append(piece)
        used += len(piece)
        if used > limit:
            while used >= limit:
                used -= len(pieces.pop())
            return VisibleLine("".join(pieces) + ELLIPSIS, len(text), cut=True)
    return VisibleLine("".join(pieces), len(text))


def whole_line(text: str) -> str:
    """Use the format of `one_line`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_pieces(text.replace("\r\n", "\n")))


def scalar_line(value: Any, limit: int) -> VisibleLine:
    """`1` and `1.0` look alike, because they have the same digest."""
    if isinstance(value, str):
        return one_line(value, limit) if value else VisibleLine("⟦empty⟧", 0)
    if value is None:
        return VisibleLine("⟦none⟧", 0)
    if isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, int | float):
        text = number(value)
    else:
        return one_line(str(value), limit)
    return one_line(text, limit)


def number(value: int | float) -> str:
    """Use no locale, thousands separators, needless exponent or `.0`."""
    if isinstance(value, int):
        # Python refuses to write very long integers in decimal.
        long = value.bit_length() > _MAX_INTEGER_BITS
        return f"an integer of {value.bit_length()} bits" if long else str(value)
    if value == 0:
        return "0"
    # Written so that NaN takes this branch as well.
    if not abs(value) < _POSITIONAL_BELOW:
        return repr(value)
    # `repr` is the shortest text that reads back the same. `Decimal(value)` would show binary noise.
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def cut_visible(line: str, limit: int) -> str:
    """Cut visible text of a card to `limit`, but never inside a mark.

    Any character that is invisible after all becomes a mark.
    """
    parts = _MARK.split(line[: 2 * limit + _MARK_CHARS])
    pieces = (part if at % 2 else one_line(part, _MARK_CHARS * len(part) + 2).text for at, part in enumerate(parts))
    whole = "".join(pieces)
    if len(whole) <= limit:
        return whole
    kept: list[str] = []
    used = len(ELLIPSIS)
    for found in _ATOM.finditer(whole):
        atom = found.group()
        used += len(atom)
        if used > limit:
            break
        kept.append(atom)
    return "".join(kept) + ELLIPSIS


def _pieces(text: str) -> Iterator[str]:
    combining = 0
    for char in text:
        category = unicodedata.category(char)
        combining = combining + 1 if category in ("Mn", "Me") else 0
        if char in _LINE_ENDS:
            yield NEWLINE
        elif category in _HIDDEN_CATEGORIES or char in _OWN_MARKS or _BLANK.match(char) or combining > _MAX_COMBINING:
            yield f"⟦U+{ord(char):04X}⟧"
        else:
            yield char
