"""Computes the hash of an email's body as DKIM defines it (RFC 6376, 3.4), in pieces, so that no email blocks others.
dkimpy canonicalises the whole body at once for each signature: three signatures over 10 MiB take five seconds of
CPU.
"""

import hashlib
import re
import time
from collections.abc import Iterator
from typing import Final

from signoff.contracts.limits import MAIL_HASH_SECONDS, MAIL_HASHED_BYTES

_PIECE: Final = 64 * 1024
_BLANKS: Final = re.compile(rb"[ \t]+")


class BodyHashes:
    """Computes the hashes of one body, once per form; None if it is too much work."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._known: dict[str, bytes | None] = {}
        self._left = MAIL_HASHED_BYTES
        self._seconds = MAIL_HASH_SECONDS

    def of(self, form: str) -> bytes | None:
        """Return the hash in the form `simple` or `relaxed`, None for any other. `body` has line ends LF."""
        if form not in self._known:
            self._known[form] = self._make(form) if form in ("simple", "relaxed") else None
        return self._known[form]

    def _make(self, form: str) -> bytes | None:
        if len(self._body) > self._left:
            return None
        self._left -= len(self._body)
        made = hashlib.sha256()
        begun = time.thread_time()
        for piece in _without_empty_end(_pieces(self._body, relaxed=form == "relaxed"), simple=form == "simple"):
            made.update(piece)
            if time.thread_time() - begun > self._seconds:
                return None
        self._seconds -= time.thread_time() - begun
        return made.digest()


def _pieces(body: bytes, *, relaxed: bool) -> Iterator[bytes]:
    """`relaxed` makes each run of blanks one, and removes blanks before a line end."""
    if not relaxed:
        yield from (body[at : at + _PIECE] for at in range(0, len(body), _PIECE))
        return
    blank = b""
    for at in range(0, len(body), _PIECE):
        piece = _BLANKS.sub(b" ", blank + body[at : at + _PIECE]).replace(b" \n", b"\n")
        # A run of blanks may continue in the next piece, or end there before a line end.
        blank = piece[-1:] if piece.endswith(b" ") else b""
        yield piece.removesuffix(b" ")
    yield blank


def _without_empty_end(pieces: Iterator[bytes], *, simple: bool) -> Iterator[bytes]:
    """Yield the pieces with line ends CRLF, without the empty lines at the end, and with one final line end."""
    ends, something = 0, False
    for piece in pieces:
        kept = piece.rstrip(b"\n")
        if kept:
            yield from (b"\r\n" * min(_PIECE, ends - at) for at in range(0, ends, _PIECE))
            yield kept.replace(b"\n", b"\r\n")
            ends, something = 0, True
        ends += len(piece) - len(kept)
    # An empty body is one line end in the form `simple`, and empty in `relaxed`.
    if something or simple:
        yield b"\r\n"
