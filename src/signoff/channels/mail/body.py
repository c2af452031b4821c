"""Extracts the text of an email: every plain or HTML part that is not an attachment, in order.

The standard library's parser of whole emails takes quadratic time for nested parts, and fails with RecursionError.
"""

import binascii
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
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
class MailText:
    """The text of one part. `flowed`: a line that ends in a space continues in the next line."""

    text: str
    html: bool = False
    flowed: bool = False


@dataclass(frozen=True)
class MailBody:
    """The text of an email, as clients that prefer plain text and clients that prefer HTML show it.

    `cut`: the email has more text or parts than these.
    """

    plain: tuple[MailText, ...] = ()
    rich: tuple[MailText, ...] = ()
    cut: bool = False


@dataclass
class _Part:
    """A part of an email: a leaf has a `body`, a container has `parts`."""

    type: Message
    body: bytes = b""
    parts: list["_Part"] = field(default_factory=list)

    @property
    def attached(self) -> bool:
        return self.type.get_content_disposition() == "attachment"


def written_body(header: MailHeader, body: bytes) -> MailBody:
    """`header` and `body` are from `split_mail`. Raises `Malformed` if a content type contradicts itself."""
    root, cut = _tree(header, body)
    plain, rich = (_shown(root, html=html) for html in (False, True))
    return MailBody(
        tuple(part for part, _ in plain), tuple(part for part, _ in rich), cut or any(c for _, c in plain + rich)
    )


def content_type(header: MailHeader) -> str:
    """In lower case, such as `text/plain`."""
    return _keep_types(header).get_content_type()


def _shown(part: _Part, *, html: bool) -> list[tuple[MailText, bool]]:
    """Return the texts that a client shows of a part, each with whether it was cut.

    A client shows one of several alternatives: the first in plain text, or the last in HTML (RFC 2046, 5.1.4).
    """
    if part.attached:
        return []
    if not part.parts:
        read = _read(part) if part.type.get_content_type() in ("text/plain", "text/html") else None
        return [read] if read is not None and read[0].text.strip() else []
    each = [_shown(inner, html=html) for inner in part.parts]
    if part.type.get_content_subtype() != "alternative":
        return [text for texts in each for text in texts]
    each = [texts for texts in each if texts]
    # Select by type: some clients write the alternatives in the wrong order.
    wanted = [texts for texts in each if texts[0][0].html == html]
    if html:
        return (wanted or each or [[]])[-1]
    return (wanted or each or [[]])[0]


def _tree(header: MailHeader, body: bytes) -> tuple[_Part, bool]:
    """Return the outermost part, and whether parts were left out."""
    root = _Part(_keep_types(header), body)
    waiting = deque([(root, 0)])
    seen, cut = 0, False
    while waiting:
        part, depth = waiting.popleft()
        multiple = part.type.get_content_maintype() == "multipart"
        boundary = _parameter(part.type, "boundary") if multiple else ""
        if not boundary:
            continue
        pieces = list(_pieces(part.body, boundary))
        seen += len(pieces)
        if depth >= _MAX_DEPTH or seen > _MAX_PARTS:
            cut = True
            continue
        for piece in pieces:
            head, content = _part(piece)
            part.parts.append(_Part(_keep_types(head), content))
        waiting.extend((inner, depth + 1) for inner in part.parts)
    return root, cut


def _pieces(body: bytes, boundary: str) -> Iterator[bytes]:
    delimiter = b"\n--" + boundary.encode("utf-8", "surrogateescape")
    body = b"\n" + body
    start = body.find(delimiter)
    # Yield one more than the limit, so that the caller sees that there are more.
    for _ in range(_MAX_PARTS + 1):
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
    """Keep only the fields that describe a part, for the standard library's parameter parser."""
    message = Message()
    for name in ("content-type", "content-disposition", "content-transfer-encoding"):
        # Cut the value: that parser counts quotes again at every semicolon, in quadratic time.
        message[name] = header.first(name)[:_MAX_PARAMETERS].replace("\n", " ")
    return message


def _parameter(kind: Message, name: str) -> str:
    """Return "" for a missing parameter. Raises `Malformed`."""
    try:
        value = kind.get_param(name)
    # The standard library sorts the pieces of RFC 2231 by number, and fails if one has none, as in
    # `charset*=a; charset*0*=b`.
    except (TypeError, ValueError):
        raise Malformed("a content type of the mail contradicts itself") from None
    # Take the last of RFC 2231's charset, language and text: charset names and boundaries are ASCII in any charset.
    return str(value[2] if isinstance(value, tuple) else value or "").rstrip()


def _read(part: _Part) -> tuple[MailText, bool]:
    """Return the text, and whether it was cut."""
    encoding = str(part.type["content-transfer-encoding"]).strip().lower()
    # Both encodings lengthen the text, so this many bytes are enough for all text that is read.
    raw = part.body[: 4 * MAX_TEXT]
    if encoding == "base64":
        raw = _from_base64(raw)
    elif encoding == "quoted-printable":
        raw = binascii.a2b_qp(raw)
    charset = _parameter(part.type, "charset") or "utf-8"
    flowed = _parameter(part.type, "format").lower() == "flowed"
    text = decode_text(raw[:MAX_TEXT], charset)
    html = part.type.get_content_type() == "text/html"
    return MailText(text, html, flowed), len(raw) > MAX_TEXT or len(part.body) > 4 * MAX_TEXT


def _from_base64(body: bytes) -> bytes:
    try:
        return binascii.a2b_base64(body)
    except binascii.Error:
        # Mostly the end is missing, such as after a cut in transit. Decode the complete groups before it.
        return _whole_quads(body)


def _whole_quads(body: bytes) -> bytes:
    letters = bytes(char for char in body.partition(b"=")[0] if chr(char).isalnum() or char in b"+/")
    return binascii.a2b_base64(letters[: len(letters) // 4 * 4])
