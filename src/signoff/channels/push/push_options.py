"""The options of notifications, and the check of addresses that browsers supply."""

import base64
import binascii
from typing import Final
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import Field, field_validator

from signoff.channels.base import ChannelOptions
from signoff.channels.outbound_http import read_networks
from signoff.contracts.person import PushSubscription

KNOWN_SERVICES: Final = (
    "fcm.googleapis.com",
    "*.push.services.mozilla.com",
    "*.push.apple.com",
    "*.notify.windows.com",
)
"""The push services of Chrome, Firefox, Safari and Edge."""
_AUTH_BYTES: Final = 16
_TLS_PORT: Final = 443


class PushOptions(ChannelOptions):
    """The options of notifications."""

    private_key: str = Field(
        description="The private key of the installation, env:NAME; its value is 32 bytes in base64url.", repr=False
    )
    contact: str = Field(
        pattern=r"^(mailto:[^@\s]+@[^@\s]+|https://[^/\s]+)$",
        description="Where a push service reaches the operator, such as mailto:ops@example.com.",
    )
    services: tuple[str, ...] = Field(
        KNOWN_SERVICES, min_length=1, description="Hosts of push services. `*.` covers all names below a name."
    )
    allow_networks: tuple[str, ...] = Field((), description="Private networks of push services, such as 10.0.0.0/8.")

    @field_validator("allow_networks")
    @classmethod
    def _networks(cls, written: tuple[str, ...]) -> tuple[str, ...]:
        read_networks(written)
        return written

    def problem(self, subscription: PushSubscription) -> str:
        """Return the reason for which nothing may be sent to the browser, or ""."""
        try:
            parts = urlsplit(subscription.endpoint)
            host, port = parts.hostname or "", parts.port or _TLS_PORT
        except ValueError:
            return "its endpoint is no address"
        if not subscription.endpoint.isascii() or parts.username is not None or parts.password is not None:
            return "its endpoint is no plain address"
        # A push service in a private network may have any port, and no TLS. `outbound_http` checks the network.
        if not self.allow_networks and (parts.scheme != "https" or port != _TLS_PORT):
            return "its endpoint has no TLS on the usual port"
        if parts.scheme not in ("https", "http"):
            return "its endpoint is no web address"
        if not any(_covers(service, host) for service in self.services):
            return "its push service is not among the option `services`"
        return _key_problem(subscription)


def decode(written: str) -> bytes:
    """Decode base64url without padding. Raises `ValueError`."""
    try:
        return base64.b64decode(written + "=" * (-len(written) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("not base64url") from error


def encode(content: bytes) -> str:
    """Encode in base64url without padding."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _covers(service: str, host: str) -> bool:
    return host.endswith(service[1:]) if service.startswith("*.") else host == service


def _key_problem(subscription: PushSubscription) -> str:
    try:
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), decode(subscription.p256dh))
        short = len(decode(subscription.auth)) != _AUTH_BYTES
    except ValueError:
        return "its keys are invalid"
    return "its keys are invalid" if short else ""
