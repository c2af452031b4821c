"""Holds a mail as it came in, by whatever way, with the verdict of the provider that brought it."""

from dataclasses import dataclass

from signoff.channels.envelopes import InboundRequest
from signoff.channels.mail.authentication.authenticity import ProviderVerdict


@dataclass(frozen=True)
class FetchedMail(InboundRequest):
    """A mail that we fetched, or that our own mail server handed in; no HTTP route makes one."""

    recipients: tuple[str, ...] = ()


@dataclass(frozen=True)
class ArrivedMail:
    """One mail, byte for byte."""

    raw: bytes
    """Its bytes."""
    recipients: tuple[str, ...] = ()
    """The recipients of its envelope, if they are known."""
    verdict: ProviderVerdict | None = None
    """The provider's verdict."""
