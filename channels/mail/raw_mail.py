"""A mail as it came in, by whatever way, and what a provider that brought it says of it."""

from dataclasses import dataclass

from signoff.channels.envelopes import InboundRequest
from signoff.channels.mail.authenticity import ProviderVerdict


@dataclass(frozen=True)
class Fetched(InboundRequest):
    """A mail that we fetched, or that our own mail server handed in: no door makes one."""

    recipients: tuple[str, ...] = ()


@dataclass(frozen=True)
class Arrived:
    """One mail, byte for byte. `recipients` are those of its envelope, if they are known."""

    raw: bytes
    recipients: tuple[str, ...] = ()
    verdict: ProviderVerdict | None = None
