"""What a mail says: the first line that its writer wrote anew, the rest as a comment, and whether a person wrote it.

Mail comes from anybody, so all work here grows with the length of the mail and no faster, and any bytes at all are
either read or `Malformed`. Whether the mail comes from whom it claims is `mail_authenticity.py`'s to say.
"""

from dataclasses import dataclass
from typing import Final

MAX_MAIL: Final = 10 * 1024 * 1024
"""Bytes of a whole mail; a longer one is not read."""


@dataclass(frozen=True)
class MailSaid:
    """What one mail holds for us. Addresses are in lower case, message ids with their angle brackets.

    `first_line` is the first newly written line and the only one that may decide; it is empty where nothing may,
    and `unclear` then says why: `nothing` written, `below_quote`, `between_quotes`. `comment` is all that was newly
    written, whatever decides. `automatic` names the sign by which a machine wrote it; such a mail is never answered and
    decides nothing. `sender` is empty unless there is exactly one address in exactly one From, and is only a claim.
    `recipients` are those of To and Cc, `delivered` those of Delivered-To and the like, which our own server adds.
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
    raise NotImplementedError
