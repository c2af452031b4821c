"""Makes the marks around other people's text in a model's input."""

import hashlib
from typing import Final

_MARK_CHARS: Final = 16


def fence_mark(text: str) -> str:
    """`text` does not contain the mark, which is the same in every process."""
    body = text.encode("utf-8", "surrogatepass")
    number = 0
    while True:
        mark = hashlib.sha256(b"%d:%b" % (number, body)).hexdigest()[:_MARK_CHARS]
        # An author can search for a text that contains its own 64-bit mark. Then the next number gives another.
        if mark not in text:
            return mark
        number += 1
