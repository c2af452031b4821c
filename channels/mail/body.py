"""Extracts the one part of a mail that a person wrote, as text: the first plain one, else the first in HTML.

The standard library's parser of whole mails takes time as the square of their nesting, and ends in RecursionError.
"""

import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from email.message import Message
from typing import Final

from signoff.channels.channel_errors import Malformed
from signoff.channels.mail.charsets import decode_text
from signoff.channels.mail.header import MailHeader, part_header

MAX_TEXT: Final = 1024 * 1024
"""Bytes of one part that are read."""
_MAX_DEPTH: Final = 10
_MAX_PARTS: Final = 100
_MAX_PARAMETERS: Final = 1_000


@dataclass(frozen=True)
class MailBody:
    """What was written, as one text. `flowed`: a line that ends in a space goes on in the next.

    `cut`: there is more. `twin` is the same in HTML, beside a plain text.
    """

    text: str
    html: bool = False
    flowed: bool = False
    cut: bool = False
    twin: str = ""


@dataclass(frozen=True)
class _Part:
    type: Message
    body: bytes

    @property
    def attached(self) -> bool:
        return self.type.get_content_disposition() == "attachment"


def written_body(header: MailHeader, body: bytes) -> MailBody:
    """Extracts the text of a mail whose header and body `split_mail` gave.

    Raises `Malformed` where a content type contradicts itself.
    """
    parts = list(_leaves(header, body))
    plain, html = (_first(parts, wanted) for wanted in ("text/plain", "text/html"))
    if plain is None:
        return html or MailBody("")
    return plain if html is None else replace(plain, twin=html.text)


def content_type(header: MailHeader) -> str:
    """Returns the content type of a mail or part, in lower case, such as `text/plain`."""
    return _keep_types(header).get_content_type()


def _first(parts: Sequence[_Part], wanted: str) -> MailBody | None:
    """Returns the first part of that type that is not attached and has text."""
    for part in parts:
        if part.type.get_content_type() == wanted and not part.attached:
            read = _read(part, html=wanted == "text/html")
            if read.text.strip():
                return read
    return None


def _leaves(header: MailHeader, body: bytes) -> Iterator[_Part]:
    waiting = [(header, body, 0)]
    seen = 0
    while waiting and seen < _MAX_PARTS:
        seen += 1
        header, body, depth = waiting.pop()
        kind = _keep_types(header)
        boundary = _parameter(kind, "boundary") if kind.get_content_maintype() == "multipart" else ""
        if not boundary:
            yield _Part(kind, body)
        elif depth < _MAX_DEPTH:
            inner = [(*_part(piece), depth + 1) for piece in _pieces(body, boundary)]
            waiting.extend(reversed(inner))


def _pieces(body: bytes, boundary: str) -> Iterator[bytes]:
    delimiter = b"\n--" + boundary.encode("utf-8", "surrogateescape")
    body = b"\n" + body
    start = body.find(delimiter)
    for _ in range(_MAX_PARTS):
        if start < 0 or body.startswith(b"--", start + len(delimiter)):
            return
        end = body.find(delimiter, start + 1)
        line = body.find(b"\n", start + 1)
        if line >= 0 and (end < 0 or line <= end):
            yield body[line + 1 : end if end >= 0 else len(body)]
        start = end


def _part(piece: bytes) -> tuple[MailHeader, bytes]:
    if piece.startswith(b"\n"):
        return MailHeader(()), piece[1:]
    head, _, body = piece.partition(b"\n\n")
    return part_header(head), body


def _keep_types(header: MailHeader) -> Message:
    """Keeps only what describes how a part is read, for the standard library's reader of parameters."""
    message = Message()
    for name in ("content-type", "content-disposition", "content-transfer-encoding"):
        # Cut short: that reader counts quotes anew at every semicolon, in time that grows as the square of the length.
        message[name] = header.first(name)[:_MAX_PARAMETERS].replace("\n", " ")
    return message


def _parameter(kind: Message, name: str) -> str:
    """Returns a parameter of a content type; "" where there is none. Raises `Malformed`."""
    try:
        value = kind.get_param(name)
    # The standard library sorts the pieces of RFC 2231 by their numbers, and fails where one of them has none, as in
    # `charset*=a; charset*0*=b`.
    except (TypeError, ValueError):
        raise Malformed("a content type of the mail contradicts itself") from None
    # Of RFC 2231's charset, language and text the last: names of charsets and boundaries are ASCII in any charset.
    return str(value[2] if isinstance(value, tuple) else value or "").rstrip()


def _read(part: _Part, *, html: bool) -> MailBody:
    encoding = str(part.type["content-transfer-encoding"]).strip().lower()
    # Two bytes and more stand for one in both encodings, so this much always holds what is read of it.
    raw = part.body[: 4 * MAX_TEXT]
    if encoding == "base64":
        raw = _from_base64(raw)
    elif encoding == "quoted-printable":
        raw = binascii.a2b_qp(raw)
    charset = _parameter(part.type, "charset") or "utf-8"
    flowed = _parameter(part.type, "format").lower() == "flowed"
    text = decode_text(raw[:MAX_TEXT], charset)
    return MailBody(text, html=html, flowed=flowed, cut=len(raw) > MAX_TEXT or len(part.body) > 4 * MAX_TEXT)


def _from_base64(body: bytes) -> bytes:
    try:
        return binascii.a2b_base64(body)
    except binascii.Error:
        # Mostly the end is missing, as of a mail that was cut short on its way: what came whole before it can be read.
        return _whole_quads(body)


def _whole_quads(body: bytes) -> bytes:
    letters = bytes(char for char in body.partition(b"=")[0] if chr(char).isalnum() or char in b"+/")
    return binascii.a2b_base64(letters[: len(letters) // 4 * 4])
