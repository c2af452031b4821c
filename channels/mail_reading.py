"""What a mail says: the first line that its writer wrote anew, the rest as a comment, and whether a person wrote it.

Mail comes from anybody, so all work here grows with the length of the mail and no faster, and any bytes at all are
either read or `Malformed`. Whether the mail comes from whom it claims is `mail_authenticity.py`'s to say.
"""

from dataclasses import dataclass
from typing import Final

from signoff.channels.base import Malformed
from signoff.channels.mail_automatic import automatic_sign
from signoff.channels.mail_fields import Header, mailboxes, message_ids, only_sender, shown, split_mail
from signoff.channels.mail_html import html_lines
from signoff.channels.mail_parts import Body, written_body
from signoff.channels.mail_quotes import Written, newly_written

MAX_MAIL: Final = 10 * 1024 * 1024
"""Bytes of a whole mail; a longer one is not read."""
_DELIVERED: Final = ("delivered-to", "x-original-to", "envelope-to", "x-envelope-to")
_MAX_ADDRESSES: Final = 200


@dataclass(frozen=True)
class MailSaid:
    """What one mail holds for us. Addresses are in lower case, message ids with their angle brackets.

    `first_line` is the first newly written line and the only one that may decide; it is empty where nothing may,
    and `unclear` then says why: `nothing` written, `below_quote`, `between_quotes`, `too_long`. `comment` is all that
    was newly written, whatever decides. `automatic` names the sign by which a machine wrote it; such a mail is never
    answered and decides nothing. `sender` is empty unless there is exactly one address in exactly one From, and is
    only a claim. `recipients` are those of To and Cc, `delivered` those of Delivered-To and the like, which our own
    server adds.
    """

    first_line: str
    comment: str
    unclear: str
    automatic: str
    sender: str
    recipients: tuple[str, ...]
    delivered: tuple[str, ...]
    message_id: str
    references: tuple[str, ...]
    """Of In-Reply-To, then of References, last first: what it most likely replies to comes first."""
    subject: str

    @property
    def text(self) -> str:
        """What `Heard.text` is: `comment`, headed by why nothing in it decides if nothing does."""
        return f"[{self.unclear}] {self.comment}" if self.unclear else self.comment


def read_mail(raw: bytes) -> MailSaid:
    """Read a mail as it came, headers and all. Raises `Malformed`, and nothing else."""
    if len(raw) > MAX_MAIL:
        raise Malformed("the mail is too long")
    header, body = split_mail(raw)
    sender, _ = only_sender(header)
    written = _written(written_body(header, body))
    ids = message_ids(header.first("message-id"))
    return MailSaid(
        first_line=written.first_line,
        comment=written.comment,
        unclear=written.unclear,
        automatic=automatic_sign(header),
        sender=sender,
        recipients=_addresses(header, "to", "cc"),
        delivered=_addresses(header, *_DELIVERED),
        message_id=ids[0] if ids else "",
        references=_references(header),
        subject=shown(header.first("subject")),
    )


def _written(body: Body) -> Written:
    lines = html_lines(body.text) if body.html else body.text.split("\n")
    written = newly_written(lines, flowed=body.flowed)
    # What was cut off may take back what stands above it.
    return Written("", written.comment, "too_long") if body.cut else written


def _addresses(header: Header, *names: str) -> tuple[str, ...]:
    found = (address for name in names for value in header.all(name) for address in mailboxes(value).addresses)
    return tuple(dict.fromkeys(found))[:_MAX_ADDRESSES]


def _references(header: Header) -> tuple[str, ...]:
    """Long threads lose their middle, so what counts stands at the end."""
    found = [*message_ids(header.first("in-reply-to")), *reversed(message_ids(header.first("references")))]
    return tuple(dict.fromkeys(found))
