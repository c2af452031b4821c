"""Whether a mail comes from whom its From names: DMARC, by one of three means, and never by what the mail says itself.

A forwarder and a mailing list break signatures; such a mail decides nothing, however well it is meant.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

TxtLookup = Callable[[str], Sequence[str]]
"""TXT records of a DNS name without final dot, each with its strings joined; empty where there are none.

Raises `LookupError` or `OSError` where nobody knows. It blocks: call `authenticate` in a thread where it is given.
"""


@dataclass(frozen=True)
class ProviderVerdict:
    """What a mail provider found, in its own words: `pass` in any case is one. Only from a verified request of it.

    `envelope_from` is the address of MAIL FROM, which SPF is about.
    """

    dmarc: str
    spf: str = ""
    envelope_from: str = ""


@dataclass(frozen=True)
class Authenticity:
    """Whether `sender`, in lower case, sent the mail; `why` says what is missing, and is empty if he did.

    `surely` names the header fields, in lower case, that nobody can have changed or lent to another mail: only by
    them, and the body, may one say what the mail is about. `recipients` are To and Cc where those are among them.
    Who has an old signed mail of the sender can send it again to any address, but cannot change these.
    """

    sender: str
    by: Literal["provider", "results", "dkim", ""]
    why: str = ""
    surely: frozenset[str] = frozenset()
    recipients: tuple[str, ...] = ()


def authenticate(
    raw: bytes, *, provider: ProviderVerdict | None = None, authserv_id: str = "", txt: TxtLookup | None = None
) -> Authenticity:
    """Judge by the first means that is given, and by it alone: the provider's verdict, the topmost
    Authentication-Results of `authserv_id`, or DKIM checked here with keys found by `txt`. Never raises.
    """
    raise NotImplementedError
