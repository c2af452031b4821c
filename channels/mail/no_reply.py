"""Recognises addresses that nobody reads. Mail from them is never answered."""

import re
from typing import Final

from signoff.channels.mail.header import MailHeader, mailboxes

_NOBODY: Final = re.compile(
    r"(?<![a-z])(?:no|do ?not|dont|never) ?(?:reply|respond|response|answer)(?![a-z])"
    r"|(?<![a-z])(?:ne ?pas ?repondre|(?:bitte ?)?(?:nicht|keine) ?antwort(?:en)?|no ?respond(?:a|er|as)|"
    r"no ?contest(?:ar|e|es)|nao ?respond(?:a|er)|non ?rispondere|niet ?(?:antwoorden|beantwoorden)|"
    r"mailer ?daemon|postmaster|unattended|devnull)(?![a-z])"
)
_MAX_SHOWN: Final = 2_000


def is_no_reply(address: str) -> bool:
    """Returns whether nobody reads `address`, such as `no-reply@example.com`, in the languages of cards."""
    local = address.rpartition("@")[0].lower()
    return _NOBODY.search(re.sub(r"[-_.+=0-9]+", " ", local)) is not None


def answers_go_nowhere(header: MailHeader) -> bool:
    """Returns whether a mail asks for its answers to go to an address that nobody reads."""
    named = [address for value in header.all("reply-to") for address in mailboxes(value[:_MAX_SHOWN]).addresses]
    return any(map(is_no_reply, named))
