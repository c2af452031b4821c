"""Writes, encrypts (RFC 8291) and vouches for (VAPID, RFC 8292) the messages to push services."""

import json
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

import http_ece
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from py_vapid import Vapid02, VapidException

from signoff.channels.push.push_options import decode, encode
from signoff.contracts.errors import ConfigError
from signoff.contracts.person import PushSubscription

VOUCHED: Final = timedelta(hours=12)
"""How long a push service may accept the proof of one message. RFC 8292 allows a day."""
_KEY_BYTES: Final = 32
_ROOM: Final = 512
"""Bytes of each message before encryption. A push service learns nothing from equal sizes."""


@dataclass(frozen=True)
class PushMessage:
    """The content of a notification: no argument, tool, person or reason."""

    card: str
    """The token of the card, which opens its page. "" opens the list."""
    text: str
    """The text, in the recipient's language."""
    deny: str = ""
    """The label of the button that denies, or "" for none."""
    denied: str = ""
    """The text after a denial by that button."""
    ended: bool = False
    """Whether the request has ended. It replaces the card's notification, silently."""

    def encrypt(self, subscription: PushSubscription) -> bytes:
        """Return the message for one browser, under a new key."""
        content = json.dumps(asdict(self)).encode().ljust(_ROOM)
        encrypted: bytes = http_ece.encrypt(
            content,
            private_key=ec.generate_private_key(ec.SECP256R1()),
            dh=decode(subscription.p256dh),
            auth_secret=decode(subscription.auth),
            version="aes128gcm",
        )
        return encrypted


class VapidKey:
    """The installation's key for push services. Raises `ConfigError` for an unusable one."""

    def __init__(self, written: str, contact: str) -> None:
        try:
            raw = decode(written.strip())
            if len(raw) != _KEY_BYTES:
                raise ValueError("wrong length")
            self._vapid = Vapid02.from_raw(encode(raw).encode())
        except ValueError:
            # Not the library's own message, which may quote the key.
            why = "`private_key` is no private key: make 32 random bytes in base64url"
            raise ConfigError(why, field="private_key") from None
        self._contact = contact
        public = self._vapid.public_key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.public = encode(public)
        try:
            self.authorization("https://push.example", datetime.fromtimestamp(0).astimezone())
        except VapidException:
            raise ConfigError("`contact` is no address such as mailto:ops@example.com", field="contact") from None

    def authorization(self, endpoint: str, now: datetime) -> str:
        """Return the header `Authorization` for one push service."""
        parts = urlsplit(endpoint)
        expires = int((now + VOUCHED).timestamp())
        claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": expires, "sub": self._contact}
        return str(self._vapid.sign(claims)["Authorization"])
