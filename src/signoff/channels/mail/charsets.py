"""Decodes bytes of a mail to text, whatever they claim to be, without an error."""

import codecs
from typing import Final

_READ: Final = ("utf", "iso8859", "cp", "koi8", "mac", "gb", "big5", "euc", "shift", "iso2022", "tis", "ascii", "hz")
"""How the charsets that are text begin, as Python names them: some of its other codecs unpack, or never end."""
_CONTROLS: Final = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), " ")


def decode_text(body: bytes, charset: str) -> str:
    """Decodes `body` to text without control characters, line ends LF.

    Read as UTF-8 if it is that, and not ASCII alone, whatever `charset` says: some clients say what they do not
    hold.
    """
    if is_known_charset(charset) and (body.isascii() or not _is_utf8(body)):
        text = body.decode(charset, "replace")
    else:
        text = body.decode("utf-8", "replace")
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)
    # Some codecs let half of a surrogate pair through, as UTF-7 does, which nothing after this could encode.
    return text.encode("utf-8", "replace").decode("utf-8")


def is_known_charset(charset: str) -> bool:
    """Returns whether `charset` is one that text comes in."""
    try:
        return codecs.lookup(charset[:40]).name.replace("-", "").replace("_", "").startswith(_READ)
    except (LookupError, ValueError):
        return False


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
