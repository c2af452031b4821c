"""Splits the header of a mail strictly, and reads the addresses, ids and words in its fields.

Strictly, since two readers who split a header differently see two senders. Everything is linear in its input: the
standard library's readers take minutes for what a stranger can send, or raise whatever comes.
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
"""Bytes of a header; real ones stay below 64 KiB."""
MAX_FIELDS: Final = 500
_NAME = re.compile(rb"[\x21-\x39\x3b-\x7e]{1,200}")
_CONTROLS = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
_LIKE_ADDRESS = re.compile(r"[^\s@<>,;:\"']{1,128}@[^\s@<>,;:\"']{1,255}")
_MAX_SHOWN = 2_000
_MAX_IDS = 100


@dataclass(frozen=True)
class MailHeader:
    """The fields of a header in their order, names in lower case, values unfolded and stripped."""

    fields: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        """Returns the values of every field `name`, topmost first."""
        return [value for field, value in self.fields if field == name]

    def first(self, name: str) -> str:
        """Returns the topmost value, or ""."""
        return next(iter(self.all(name)), "")


def split_mail(raw: bytes) -> tuple[MailHeader, bytes]:
    """Splits header and body, with line ends `\n`. Raises `Malformed` where readers could differ about the header."""
    text = raw.replace(b"\r\n", b"\n")
    head, _, body = text.partition(b"\n\n") if not text.startswith(b"\n") else (b"", b"", text)
    if len(head) > MAX_HEADER:
        raise Malformed("the header of the mail is too long")
    # A lone CR is among them: some readers end a line there, and would see a field that others do not.
    if _CONTROLS.search(head):
        raise Malformed("the header of the mail holds control characters")
    fields: list[tuple[str, list[str]]] = []
    for line in head.split(b"\n"):
        name, colon, value = line.partition(b":")
        # A line of blanks is no continuation: for some readers it ends the header, for others it does not.
        if line[:1] in (b" ", b"\t") and line.strip() and fields:
            fields[-1][1].append(_text(line))
        elif colon and _NAME.fullmatch(name) and len(fields) < MAX_FIELDS:
            fields.append((name.decode("ascii").lower(), [_text(value)]))
        else:
            raise Malformed("the mail has no readable header")
    return MailHeader(tuple((name, " ".join(" ".join(lines).split())) for name, lines in fields)), body


def part_header(head: bytes) -> MailHeader:
    """Parses the header of a part of a mail, where unreadable fields do not matter."""
    fields: list[tuple[str, str]] = []
    for line in head[:MAX_HEADER].split(b"\n")[:MAX_FIELDS]:
        name, colon, value = line.partition(b":")
        if line[:1] in (b" ", b"\t") and fields:
            # Cut at each line, or a field of many lines would be copied as often as it has lines.
            fields[-1] = (fields[-1][0], f"{fields[-1][1]} {_text(line).strip()}"[:_MAX_SHOWN])
        elif colon and _NAME.fullmatch(name):
            fields.append((name.decode("ascii").lower(), _text(value).strip()[:_MAX_SHOWN]))
    return MailHeader(tuple(fields))


def decode_words(value: str) -> str:
    """Decodes the encoded words of a field's text, at most 2,000 characters of it."""
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
    """The addresses."""
    around: str
    """The text around them."""
    odd: bool
    """Whether there are groups, or quotes that do not balance."""


def mailboxes(value: str) -> Mailboxes:
    """Parses an address list. Names, comments and quoted strings are never taken for addresses."""
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
            # Marks a mailbox that has its address already; no field holds a NUL, since `split_mail` refuses it.
            bare = ["\0"]
            at = close + 1
        elif char in ",;:":
            odd = odd or char != ","
            _bare(bare, addresses, around)
            bare = []
        else:
            bare.append(char)
    _bare(bare, addresses, around)
    # A header in other letters is unusual, and mail servers differ in what they make of it.
    found = tuple(filter(None, (plain_address(each) for each in addresses if each.isascii())))
    return Mailboxes(found, "".join(around), odd or depth != 0 or len(found) != len(addresses))


def only_sender(header: MailHeader) -> tuple[str, str]:
    """Returns the one address of the one From; else "", and why it is not clear who it is."""
    values = header.all("from")
    if len(values) != 1:
        return "", "not exactly one From"
    read = mailboxes(values[0][:_MAX_SHOWN])
    if read.odd or len(read.addresses) != 1 or len(values[0]) > _MAX_SHOWN:
        return "", "From is not one plain address"
    [address] = read.addresses
    # Mail programs show the name and hide the address: `"boss@ours.example" <x@elsewhere.example>` reads as the boss.
    if any(like.lower() != address for like in _LIKE_ADDRESS.findall(decode_words(read.around))):
        return "", "the name in From is another address"
    return address, ""


def message_ids(value: str) -> list[str]:
    """Returns the ids in `<>`, the last 100 of them."""
    found: list[str] = []
    at = value.find("<")
    while at >= 0:
        end = value.find(">", at)
        if end < 0:
            break
        # An id stands on one line, and RFC 5322 gives a line 998 characters.
        if " " not in value[at:end] and end - at < 998:
            found.append(value[at : end + 1])
        at = value.find("<", end)
    return found[-_MAX_IDS:]


def without_comments(value: str) -> str:
    """Removes parentheses from a structured field's value; "" where they do not balance."""
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
    """Copies a quoted string from `at` on; where it ends, beyond the value if it does not."""
    while at < len(value) and value[at] != '"':
        at += 1 if value[at] == "\\" else 0
        around.append(value[at : at + 1])
        at += 1
    return at + 1 if at < len(value) else len(value) + 1


def _bare(bare: list[str], addresses: list[str], around: list[str]) -> None:
    """Adds the text outside quotes, comments and `<>`, up to a comma, as an address, unless one in `<>` came before."""
    text = "".join(bare)
    if text.startswith("\0"):
        around.append(text[1:])
    elif text.strip():
        addresses.append(text)


def _text(line: bytes) -> str:
    return decode_text(line, "utf-8")
