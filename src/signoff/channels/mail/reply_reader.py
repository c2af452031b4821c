"""Parses an email: its new text above and below the quote, and whether a person wrote it.

An attacker can send any email: all work here is linear in its length, and any bytes are either parsed or `Malformed`.
`authenticity.py` decides whether the email comes from its claimed sender.
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
"""The most bytes of a whole email. Longer ones are not read."""
_DELIVERED: Final = ("delivered-to", "x-original-to", "envelope-to", "x-envelope-to")
_MAX_ADDRESSES: Final = 200
_MAX_NAME: Final = 500


@dataclass(frozen=True)
class MailAnswer:
    """The relevant parts of one email.

    Addresses are in lower case, message ids have their angle brackets. `above` and `below` are the new lines above and
    below the quote. `unclear` is the reason why the text may not decide: `nothing` written, `too_long`, `struck` out,
    or its two forms `differs`. `automatic` names the sign of an automatic email, which never gets a reply and decides
    nothing. `sender` is only a claim, and is empty unless there is exactly one address in exactly one From.
    `recipients` are from To and Cc, `delivered` from Delivered-To and similar fields, which our own server adds. `name`
    is the sender's own choice.
    """

    above: tuple[str, ...]
    below: tuple[str, ...]
    quoted: tuple[str, ...]
    """The lines of the quote, without the header that the sender's client added."""
    unclear: str
    automatic: str
    sender: str
    sent_by: str
    """The address in Sender, if it differs from From. `?` if Sender has no address."""
    name: str
    recipients: tuple[str, ...]
    delivered: tuple[str, ...]
    message_id: str
    references: tuple[str, ...]
    """The ids of In-Reply-To, then of References from last to first: the most likely one comes first."""
    subject: str


def read_mail(raw: bytes, own: Collection[str] = ()) -> MailAnswer:
    """Parse a whole email, sent to our addresses `own`. Raises only `Malformed`."""
    if len(raw) > MAX_MAIL:
        raise Malformed("the mail is too long")
    header, body = split_mail(raw)
    sender, _ = only_sender(header)
    written = _read_new_text(written_body(header, body))
    # Use the name only to recognise the sign-off: only the address identifies a person.
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
    # The part beyond the limit may retract the part that is read.
    if body.cut or rich.unclear == "too_long":
        return replace(written, unclear="too_long")
    if body.rich == body.plain or written.unclear:
        return written
    # A client's plain-text part does not show that text is struck out.
    if any(STRUCK in line for line in (*rich.above, *rich.below)):
        return replace(written, unclear="struck")
    return written if _letters(written) == _letters(rich) else replace(written, unclear="differs")


def _merge(parts: Sequence[MailText]) -> WrittenText:
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
    """Return all letters, digits and emoji of a text, without addresses and the names of images.

    Clients that convert HTML to plain text add those, and wrap, indent and mark lines in various ways.
    """
    text = ADDED.sub(" ", "\n".join((*written.above, *written.below)))
    plain = unicodedata.normalize("NFKC", text.replace("\ufe0f", ""))
    return "".join(
        char for char in plain if char.isalnum() or char in "?%" or unicodedata.category(char) in ("So", "Sc")
    )


def _other_sender(header: MailHeader, sender: str) -> str:
    addresses = [address for value in header.all("sender") for address in mailboxes(value).addresses or ("?",)]
    return next((address for address in addresses if address != sender), "")


def _addresses(header: MailHeader, *names: str) -> tuple[str, ...]:
    addresses = (address for name in names for value in header.all(name) for address in mailboxes(value).addresses)
    return tuple(dict.fromkeys(addresses))[:_MAX_ADDRESSES]


def _references(header: MailHeader) -> tuple[str, ...]:
    """Return the ids, the last of References first: long threads lose their middle."""
    ids = [*message_ids(header.first("in-reply-to")), *reversed(message_ids(header.first("references")))]
    return tuple(dict.fromkeys(ids))
