"""Defines a received email, with the verdict of the provider that delivered it."""

from dataclasses import dataclass

from signoff.channels.envelopes import InboundRequest
from signoff.channels.mail.authentication.authenticity import ProviderVerdict


@dataclass(frozen=True)
class FetchedMail(InboundRequest):
    """An email that Signoff fetched, or that our own mail server handed in. HTTP routes never create one."""

    recipients: tuple[str, ...] = ()


@dataclass(frozen=True)
class ArrivedMail:
    """One email, byte for byte."""

    raw: bytes
    recipients: tuple[str, ...] = ()
    """The recipients of the envelope, if known."""
    verdict: ProviderVerdict | None = None
