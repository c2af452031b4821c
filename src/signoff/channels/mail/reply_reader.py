"""Reads a mail: all that its writer wrote anew, above the quote and below it, and whether a person wrote it.

Mail comes from anybody, so all work here grows with the length of the mail and no faster, and any bytes at all are
either read or `Malformed`. Whether the mail comes from whom it claims is `authenticity.py`'s to say.
"""

import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from signoff.channels.answer_text.quotes import WrittenText, find_new_text
from signoff.channels.answer_text.sent_words import ADDED
from signoff.channels.channel_errors import Malformed
from signoff.channels.mail.auto_reply import automatic_sign
from signoff.channels.mail.body import MailBody, MailText, written_body
from signoff.channels.mail.header import MailHeader, decode_words, mailboxes, message_ids, only_sender, split_mail
from signoff.channels.mail.html_text import STRUCK, html_lines

MAX_MAIL: Final = 10 * 1024 * 1024
"""Bytes of a whole mail; a longer one is not read."""
_DELIVERED: Final = ("delivered-to", "x-original-to", "envelope-to", "x-envelope-to")
_MAX_ADDRESSES: Final = 200
_MAX_NAME: Final = 500


@dataclass(frozen=True)
class MailAnswer:
    """What one mail holds for us. Addresses are in lower case, message ids with their angle brackets.

    `above` and `below` are what was newly written above the quote and below it, by line. `unclear` says why none of it
    may decide: `nothing` written, `too_long`, or `struck` out. `automatic` names the sign by which a machine wrote it;
    such a mail is never answered and decides nothing. `sender` is empty unless there is exactly one address in exactly
    one From, and is only a claim. `recipients` are those of To and Cc, `delivered` those of Delivered-To and the like,
    which our own server adds. `name` is what the sender calls themselves.
    """

    above: tuple[str, ...]
    below: tuple[str, ...]
    quoted: tuple[str, ...]
    """The lines of the quote, without the header that the sender's program gave it."""
    unclear: str
    automatic: str
    sender: str
    sent_by: str
    """The address in Sender, if it is another than that in From; `?` where it is none."""
    name: str
    recipients: tuple[str, ...]
    delivered: tuple[str, ...]
    message_id: str
    references: tuple[str, ...]
    """Of In-Reply-To, then of References, last first: what it most likely replies to comes first."""
    subject: str


def read_mail(raw: bytes, own: Collection[str] = ()) -> MailAnswer:
    """Reads a mail as it came, headers and all, sent to our addresses `own`. Raises `Malformed`, and nothing else."""
    if len(raw) > MAX_MAIL:
        raise Malformed("the mail is too long")
    header, body = split_mail(raw)
    sender, _ = only_sender(header)
    written = _read_new_text(written_body(header, body))
    # Only for reading what stands below an answer: who may answer is known by the address alone.
    name = decode_words(mailboxes(header.first("from")[:_MAX_NAME]).around) if sender else ""
    ids = message_ids(header.first("message-id"))
    return MailAnswer(
        above=written.above,
        below=written.below,
        quoted=written.quoted,
        unclear=written.unclear,
        automatic=automatic_sign(header, own),
        sender=sender,
        sent_by=_other_sender(header, sender),
        name=" ".join(name.replace("\0", " ").split()),
        recipients=_addresses(header, "to", "cc"),
        delivered=_addresses(header, *_DELIVERED),
        message_id=ids[0] if ids else "",
        references=_references(header),
        subject=decode_words(header.first("subject")),
    )


def _read_new_text(body: MailBody) -> WrittenText:
    written, rich = _merge(body.plain), _merge(body.rich)
    # What was cut off may take back what stands above it.
    if body.cut or rich.unclear == "too_long":
        return replace(written, unclear="too_long")
    if body.rich == body.plain or written.unclear:
        return written
    # A client that writes a part without formatting leaves out that something in it is struck out.
    if any(STRUCK in line for line in (*rich.above, *rich.below)):
        return replace(written, unclear="struck")
    return written if _letters(written) == _letters(rich) else replace(written, unclear="differs")


def _merge(parts: Sequence[MailText]) -> WrittenText:
    """Returns what is new in several texts of one mail, in their order."""
    above: list[str] = []
    below: list[str] = []
    quoted: list[str] = []
    unclear = ""
    for part in parts:
        lines = html_lines(part.text) if part.html else part.text.split("\n")
        written = find_new_text(lines, flowed=part.flowed)
        above += ["", *written.above] if above and written.above else written.above
        below += ["", *written.below] if below and written.below else written.below
        quoted += written.quoted
        unclear = unclear or ("too_long" if written.unclear == "too_long" else "")
    return WrittenText(tuple(above), tuple(below), unclear or ("" if above or below else "nothing"), tuple(quoted))


def _letters(written: WrittenText) -> str:
    """Returns all letters, digits and pictures of a text, without addresses and the names of pictures.

    Programs that make plain text of HTML add those, and wrap, indent and mark lines as they like.
    """
    text = ADDED.sub(" ", "\n".join((*written.above, *written.below)))
    plain = unicodedata.normalize("NFKC", text.replace("\ufe0f", ""))
    return "".join(
        char for char in plain if char.isalnum() or char in "?%" or unicodedata.category(char) in ("So", "Sc")
    )


def _other_sender(header: MailHeader, sender: str) -> str:
    found = [address for value in header.all("sender") for address in mailboxes(value).addresses or ("?",)]
    return next((address for address in found if address != sender), "")


def _addresses(header: MailHeader, *names: str) -> tuple[str, ...]:
    found = (address for name in names for value in header.all(name) for address in mailboxes(value).addresses)
    return tuple(dict.fromkeys(found))[:_MAX_ADDRESSES]


def _references(header: MailHeader) -> tuple[str, ...]:
    """Returns the ids that a mail refers to: long threads lose their middle, so those that count stand at the end."""
    found = [*message_ids(header.first("in-reply-to")), *reversed(message_ids(header.first("references")))]
    return tuple(dict.fromkeys(found))
