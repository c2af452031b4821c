"""Makes the marks of the lines between which a model reads other people's text."""

import hashlib
from typing import Final

_MARK_CHARS: Final = 16


def fence_mark(text: str) -> str:
    """Return a mark that `text` does not hold, the same in every process."""
    body = text.encode("utf-8", "surrogatepass")
    number = 0
    while True:
        mark = hashlib.sha256(b"%d:%b" % (number, body)).hexdigest()[:_MARK_CHARS]
        # Who writes a text can search for one that holds its own 64-bit mark; then the next number gives another.
        if mark not in text:
            return mark
        number += 1
