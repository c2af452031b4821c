"""Decodes the bytes of an email, with any claimed charset and without errors."""

import codecs
from typing import Final

_READ: Final = ("utf", "iso8859", "cp", "koi8", "mac", "gb", "big5", "euc", "shift", "iso2022", "tis", "ascii", "hz")
"""Prefixes of Python's names of text charsets. Some of its other codecs decompress, or never end."""
_CONTROLS: Final = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), " ")


def decode_text(body: bytes, charset: str) -> str:
    """Decode to text without control characters, with line ends LF.

    Valid UTF-8 beyond ASCII is decoded as UTF-8 with any `charset`: some clients declare a wrong charset.
    """
    if is_known_charset(charset) and (body.isascii() or not _is_utf8(body)):
        text = body.decode(charset, "replace")
    else:
        text = body.decode("utf-8", "replace")
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)
    # Some codecs, such as UTF-7, let half of a surrogate pair through, which no later code could encode.
    return text.encode("utf-8", "replace").decode("utf-8")


def is_known_charset(charset: str) -> bool:
    """Only charsets of text are known."""
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
