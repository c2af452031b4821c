"""Splits an email's header strictly, and parses its fields.

Strict, because two parsers that split a header differently see two senders. All work is linear in the input: the
standard library's parsers take minutes for an attacker's email, or raise arbitrary errors.
"""

import re
from dataclasses import dataclass
from email.errors import MessageError
from email.header import decode_header
from typing import Final

from signoff.channels.channel_errors import Malformed
from signoff.channels.mail.charsets import decode_text
from signoff.formats.mail_address import plain_address

MAX_HEADER: Final = 128 * 1024
"""The most bytes of a header. Real ones stay below 64 KiB."""
MAX_FIELDS: Final = 500
_NAME = re.compile(rb"[\x21-\x39\x3b-\x7e]{1,200}")
_CONTROLS = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
_LIKE_ADDRESS = re.compile(r"[^\s@<>,;:\"']{1,128}@[^\s@<>,;:\"']{1,255}")
_MAX_SHOWN = 2_000
_MAX_IDS = 100


@dataclass(frozen=True)
class MailHeader:
    """The fields of a header in order, with names in lower case and values unfolded and stripped."""

    fields: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        """Topmost first."""
        return [value for field, value in self.fields if field == name]

    def first(self, name: str) -> str:
        """Return the topmost value, or ""."""
        return next(iter(self.all(name)), "")


def split_mail(raw: bytes) -> tuple[MailHeader, bytes]:
    """Split header and body, with line ends `\n`. Raises `Malformed` if parsers could differ about the header."""
    text = raw.replace(b"\r\n", b"\n")
    head, _, body = text.partition(b"\n\n") if not text.startswith(b"\n") else (b"", b"", text)
    if len(head) > MAX_HEADER:
        raise Malformed("the header of the mail is too long")
    # These include a lone CR: some parsers end a line there, and would see a field that others do not.
    if _CONTROLS.search(head):
        raise Malformed("the header of the mail holds control characters")
    fields: list[tuple[str, list[str]]] = []
    for line in head.split(b"\n"):
        name, colon, value = line.partition(b":")
        # A blank line with spaces does not continue a field: it ends the header only for some parsers.
        if line[:1] in (b" ", b"\t") and line.strip() and fields:
            fields[-1][1].append(_text(line))
        elif colon and _NAME.fullmatch(name) and len(fields) < MAX_FIELDS:
            fields.append((name.decode("ascii").lower(), [_text(value)]))
        else:
            raise Malformed("the mail has no readable header")
    return MailHeader(tuple((name, " ".join(" ".join(lines).split())) for name, lines in fields)), body


def part_header(head: bytes) -> MailHeader:
    """Parse the header of a part, where unreadable fields do not matter."""
    fields: list[tuple[str, str]] = []
    for line in head[:MAX_HEADER].split(b"\n")[:MAX_FIELDS]:
        name, colon, value = line.partition(b":")
        if line[:1] in (b" ", b"\t") and fields:
            # Cut at each line: otherwise a field of many lines would be copied in full for each line.
            fields[-1] = (fields[-1][0], f"{fields[-1][1]} {_text(line).strip()}"[:_MAX_SHOWN])
        elif colon and _NAME.fullmatch(name):
            fields.append((name.decode("ascii").lower(), _text(value).strip()[:_MAX_SHOWN]))
    return MailHeader(tuple(fields))


def decode_words(value: str) -> str:
    """Decode the encoded words in the first 2,000 characters of a field's text."""
    value = value[:_MAX_SHOWN]
    try:
        pieces = decode_header(value)
    except (ValueError, MessageError):
        return value
    return "".join(
        piece if isinstance(piece, str) else decode_text(piece, charset or "utf-8") for piece, charset in pieces
    )


@dataclass(frozen=True)
class Mailboxes:
    """The addresses of one field."""

    addresses: tuple[str, ...]
    around: str
    odd: bool
    """Whether there are groups, or quotes that do not balance."""


def mailboxes(value: str) -> Mailboxes:
    """Names, comments and quoted strings never count as addresses."""
    addresses: list[str] = []
    around: list[str] = []
    bare: list[str] = []
    odd = False
    at, depth, end = 0, 0, len(value)
    while at < end:
        char = value[at]
        at += 1
        if char == "\\" and at < end:
            around.append(value[at])
            at += 1
        elif char in "()":
            depth += 1 if char == "(" else -1
            odd = odd or depth < 0
            around.append(" ")
        elif depth > 0:
            around.append(char)
        elif char == '"':
            at = _copy_quoted(value, at, around)
            odd = odd or at > end
        elif char == "<":
            close = value.find(">", at)
            odd = odd or close < 0
            close = end if close < 0 else close
            addresses.append(value[at:close])
            around.extend(bare)
            # The NUL marks a mailbox that already has its address. No field has one, as `split_mail` refuses it.
            bare = ["\0"]
            at = close + 1
        elif char in ",;:":
            odd = odd or char != ","
            _bare(bare, addresses, around)
            bare = []
        else:
            bare.append(char)
    _bare(bare, addresses, around)
    # Addresses beyond ASCII are unusual, and mail servers treat them differently.
    found = tuple(filter(None, (plain_address(each) for each in addresses if each.isascii())))
    return Mailboxes(found, "".join(around), odd or depth != 0 or len(found) != len(addresses))


def only_sender(header: MailHeader) -> tuple[str, str]:
    """Return the one address of the one From, or "" and the reason why the sender is unclear."""
    values = header.all("from")
    if len(values) != 1:
        return "", "not exactly one From"
    read = mailboxes(values[0][:_MAX_SHOWN])
    if read.odd or len(read.addresses) != 1 or len(values[0]) > _MAX_SHOWN:
        return "", "From is not one plain address"
    [address] = read.addresses
    # Clients show the name and hide the address: `"boss@ours.example" <x@elsewhere.example>` looks like the boss.
    if any(like.lower() != address for like in _LIKE_ADDRESS.findall(decode_words(read.around))):
        return "", "the name in From is another address"
    return address, ""


def message_ids(value: str) -> list[str]:
    """Return the last 100 ids in `<>`."""
    ids: list[str] = []
    at = value.find("<")
    while at >= 0:
        end = value.find(">", at)
        if end < 0:
            break
        # An id is on one line, which has at most 998 characters (RFC 5322).
        if " " not in value[at:end] and end - at < 998:
            ids.append(value[at : end + 1])
        at = value.find("<", end)
    return ids[-_MAX_IDS:]


def without_comments(value: str) -> str:
    """Remove the parentheses from a structured field's value. "" if they do not balance."""
    kept: list[str] = []
    depth, at, quoted = 0, 0, False
    while at < len(value):
        char = value[at]
        at += 1
        if char == "\\":
            kept.append("" if depth else value[at - 1 : at + 1])
            at += 1
        elif char == '"' and not depth:
            quoted = not quoted
            kept.append(char)
        elif char in "()" and not quoted:
            depth += 1 if char == "(" else -1
            if depth < 0:
                return ""
            kept.append(" ")
        elif not depth:
            kept.append(char)
    return "" if depth or quoted else "".join(kept)


def _copy_quoted(value: str, at: int, around: list[str]) -> int:
    """Copy a quoted string from `at` on. Returns its end, or a place beyond the value if it has none."""
    while at < len(value) and value[at] != '"':
        at += 1 if value[at] == "\\" else 0
        around.append(value[at : at + 1])
        at += 1
    return at + 1 if at < len(value) else len(value) + 1


def _bare(bare: list[str], addresses: list[str], around: list[str]) -> None:
    """Add the text outside quotes, comments and `<>`, up to a comma, as an address unless one in `<>` precedes it."""
    text = "".join(bare)
    if text.startswith("\0"):
        around.append(text[1:])
    elif text.strip():
        addresses.append(text)


def _text(line: bytes) -> str:
    return decode_text(line, "utf-8")
