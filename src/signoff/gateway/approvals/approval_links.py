"""Makes and reads approval links: an address, sent to one person, that opens one revision of one request until it
expires.

A link is a bearer token: any holder can open it, so a decision through it has assurance `link` only.
"""

import hashlib
from datetime import UTC, datetime
from typing import Final, Literal

from pydantic import ValidationError

from signoff.contracts.errors import Refused
from signoff.contracts.frozen_model import FrozenModel
from signoff.gateway.signed_state import seal, unseal

LINK_KEY: Final = "approval-links"
"""The store's key that seals links. All gateways of one store share it."""
_WHAT: Final = "approval link 1"
_FIELDS: Final = ("approval", "revision", "person", "verb", "channel", "expires")


class ApprovalLink(FrozenModel):
    """The contents of a link."""

    approval: str
    revision: int
    person: str
    """The recipient's id in the request's tenant."""
    verb: Literal["", "approved", "denied"] = ""
    """The only verdict it can give; "" for both."""
    channel: str = "link"
    """The channel that sent it, and the channel of a decision through it."""
    expires: datetime
    """Expiry in UTC, to the second."""


def make_link(key: bytes, link: ApprovalLink) -> str:
    """Return the last part of the address `/link/...`. `key` is the store's `LINK_KEY`."""
    expires = int(link.expires.timestamp())
    return seal(key, _WHAT, [link.approval, link.revision, link.person, link.verb, link.channel, expires])


def read_link(key: bytes, written: str, now: datetime) -> ApprovalLink:
    """Raises `Refused`: `malformed` for a forged or broken link, `expired`."""
    values = unseal(key, _WHAT, written)
    if values is None:
        raise Refused("this link is invalid or incomplete", code="malformed")
    try:
        *first, expires = values
        given = dict(zip(_FIELDS, (*first, datetime.fromtimestamp(expires, UTC)), strict=True))
        link = ApprovalLink.model_validate(given)
    except (ValidationError, ValueError, TypeError):
        raise Refused("this link was made by another version of the gateway", code="malformed") from None
    if now >= link.expires:
        raise Refused("this link has expired; sign in and find the request there", code="expired")
    return link


def delivery_of(written: str) -> str:
    """Repeated decisions through a link count once by this id."""
    return hashlib.sha256(written.encode()).hexdigest()[:32]
