"""Fakes a push service and the browsers of three people, as strict as RFC 8030, 8291 and 8292 are."""

import base64
import json
import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from starlette.requests import Request
from starlette.responses import Response

from signoff.channels.base import Channel
from signoff.channels.envelopes import InboundRequest
from signoff.channels.push.push import Push
from signoff.contracts.decision import Verdict
from signoff.contracts.person import PushSubscription
from signoff.store.messages.push_subscriptions import PushSubscriptions
from signoff.store.store import Store
from signoff.testing.vendor import Trouble, Vendor, VendorCard
from signoff.testing.vendor_server import serve_vendor

CONTACT: Final = "mailto:ops@example.com"
PRIVATE_KEY: Final = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
"""The private key of RFC 8291, appendix A."""
_TENANT: Final = "main"
_MOST_BYTES: Final = 4_096
_LONGEST_PROOF: Final = timedelta(hours=24)
_TOPIC: Final = re.compile(r"[A-Za-z0-9_-]{1,32}\Z")
_URGENCIES: Final = frozenset({"very-low", "low", "normal", "high"})
_PROOF: Final = re.compile(r"vapid t=([\w.-]+), ?k=([\w-]+)\Z")
_SUBJECT: Final = re.compile(r"mailto:\S+@\S+\Z|https://\S+\Z")
_SALT, _HEAD, _POINT, _TAG, _LAST = 16, 21, 65, 16, b"\x02"


class PushRefusal(Exception):
    """The service refuses a message with this status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass
class FakeBrowser:
    """A browser with its own keys."""

    endpoint: str
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    auth: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    status: int = 201
    """The service's response to an acceptable message."""

    @property
    def subscription(self) -> PushSubscription:
        return PushSubscription(endpoint=self.endpoint, p256dh=_words(point_of(self.key)), auth=_words(self.auth))

    def decrypt(self, body: bytes) -> bytes:
        """Decrypt a message of one record (RFC 8188, RFC 8291). Raises `PushRefusal`."""
        salt, size, length = body[:_SALT], int.from_bytes(body[_SALT:20], "big"), body[20]
        sender, record = body[_HEAD : _HEAD + length], body[_HEAD + length :]
        if length != _POINT or not _TAG < len(record) <= size:
            raise PushRefusal(400, "no aes128gcm message of one record")
        public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender)
        shared = self.key.exchange(ec.ECDH(), public)
        info = b"WebPush: info\x00" + point_of(self.key) + sender
        keyed = HKDF(SHA256(), 32, self.auth, info).derive(shared)
        key = HKDF(SHA256(), 16, salt, b"Content-Encoding: aes128gcm\x00").derive(keyed)
        nonce = HKDF(SHA256(), 12, salt, b"Content-Encoding: nonce\x00").derive(keyed)
        try:
            padded = AESGCM(key).decrypt(nonce, record, None)
        except InvalidTag:
            raise PushRefusal(400, "not encrypted for this browser") from None
        content, mark, zeros = padded.rpartition(_LAST)
        if mark != _LAST or zeros.strip(b"\x00"):
            raise PushRefusal(400, "wrong padding")
        return content


@dataclass(frozen=True)
class PushedMessage:
    """A message that a browser has received."""

    to: str
    content: Mapping[str, Any]
    headers: Mapping[str, str]
    size: int


class FakePush(Vendor):
    """One push service."""

    kind: ClassVar[str] = "push"
    identities: ClassVar[tuple[str, str, str, str]] = ("ana", "bo", "cy", "nobody")
    writes: ClassVar[bool] = False
    shows: ClassVar[bool] = False
    # The body of a success does not matter to Web Push.
    troubles: ClassVar[Sequence[Trouble]] = ("limited", "fault")
    busy_seconds: ClassVar[float] = 30.0

    def __init__(self) -> None:
        self.base = ""
        self.server_key = ""
        """The key of the only sender that may write to the browsers."""
        self.browsers: dict[str, FakeBrowser] = {}
        self.messages: list[PushedMessage] = []
        self.refusals: list[str] = []
        self.posts = 0

    @property
    def options(self) -> Mapping[str, Any]:
        host = urlsplit(self.base).hostname
        local = {"services": [host], "allow_networks": ["127.0.0.0/8"]}
        return {"private_key": "env:PUSH_KEY", "contact": CONTACT, **local}

    @property
    def environment(self) -> Mapping[str, str]:
        return {"PUSH_KEY": PRIVATE_KEY}

    async def prepare(self, store: Store, channel: Channel) -> None:
        assert isinstance(channel, Push)
        self.server_key = channel.public_key
        for name in self.identities[:3]:
            browser = self.open_browser(name)
            added = PushSubscriptions(store).add(
                _TENANT, name, channel.public_key, browser.subscription, lambda connection: None
            )
            assert await added

    def open_browser(self, name: str) -> FakeBrowser:
        """Return a new browser with the name in its endpoint."""
        browser = self.browsers[name] = FakeBrowser(f"{self.base}/push/{name}")
        return browser

    def cards(self) -> Sequence[VendorCard]:
        asked = [each for each in self.messages if not each.content["ended"]]
        return [VendorCard(each.to, str(each.content["card"]), str(each.content["text"])) for each in asked]

    def reads(self, identity: str) -> Sequence[str]:
        """A notification replaces the earlier one of its card."""
        shown = {str(each.content["card"]): str(each.content["text"]) for each in self.messages if each.to == identity}
        return list(shown.values())

    def press(self, card: VendorCard, identity: str, verdict: Verdict, reason: str = "") -> InboundRequest:
        """The request is made up: notifications cannot answer."""
        return self.sign(f"{verdict} {card.token}".encode())

    def sign(self, body: bytes) -> InboundRequest:
        """This vendor has no signatures."""
        return InboundRequest(body, {"content-type": "text/plain"}, at=self.clock())

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.posts += 1
        response = self._respond(Request(scope, receive), await Request(scope, receive).body())
        await response(scope, receive, send)

    def _respond(self, request: Request, body: bytes) -> Response:
        if self.trouble == "down":
            return Response(status_code=503)
        if self.trouble == "busy":
            return Response(status_code=429, headers={"retry-after": str(int(self.busy_seconds))})
        try:
            browser, message = self._read(request, body)
        except PushRefusal as error:
            self.refusals.append(str(error))
            return Response(status_code=error.status)
        if browser.status < 300:
            self.messages.append(message)
        return Response(status_code=browser.status, headers={"location": f"{self.base}/message/{len(self.messages)}"})

    def _read(self, request: Request, body: bytes) -> tuple[FakeBrowser, PushedMessage]:
        name, headers = request.url.path.rpartition("/")[2], dict(request.headers)
        browser = self.browsers.get(name)
        if request.method != "POST" or browser is None:
            raise PushRefusal(404, "no such browser")
        self._check_proof(headers.get("authorization", ""))
        if not headers.get("ttl", "").isdigit() or headers.get("urgency") not in _URGENCIES:
            raise PushRefusal(400, "no TTL, or no urgency")
        if _TOPIC.match(headers.get("topic", "")) is None:
            raise PushRefusal(400, "no topic")
        if headers.get("content-encoding") != "aes128gcm" or len(body) > _MOST_BYTES:
            raise PushRefusal(413 if len(body) > _MOST_BYTES else 415, "too long, or another encoding")
        content = browser.decrypt(body)
        return browser, PushedMessage(name, json.loads(content), headers, len(content))

    def _check_proof(self, header: str) -> None:
        """Check the VAPID proof (RFC 8292). Raises `PushRefusal`."""
        match = _PROOF.match(header)
        if match is None:
            raise PushRefusal(401, "no proof")
        token, key = match.groups()
        if key != self.server_key:
            raise PushRefusal(403, "the browsers were added for another key")
        signed, _, signature = token.rpartition(".")
        head, claims = (json.loads(_bytes(part)) for part in signed.split("."))
        now = self.clock().timestamp()
        if head != {"typ": "JWT", "alg": "ES256"} or claims["aud"] != self.base:
            raise PushRefusal(403, f"a proof for {claims['aud']}")
        if not now < claims["exp"] <= now + _LONGEST_PROOF.total_seconds():
            raise PushRefusal(403, "an outdated proof, or one for too long")
        if _SUBJECT.match(claims.get("sub", "")) is None:
            raise PushRefusal(403, "no contact")
        raw = _bytes(signature)
        r, s = (int.from_bytes(half, "big") for half in (raw[:32], raw[32:]))
        try:
            public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), _bytes(key))
            public.verify(encode_dss_signature(r, s), signed.encode(), ec.ECDSA(SHA256()))
        except InvalidSignature:
            raise PushRefusal(403, "a forged proof") from None


@asynccontextmanager
async def fake_push() -> AsyncIterator[FakePush]:
    vendor = FakePush()
    async with serve_vendor(vendor.app, vendor=vendor) as base:
        vendor.base = base
        yield vendor


def point_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the public key as an uncompressed point."""
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _words(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _bytes(words: str) -> bytes:
    return base64.urlsafe_b64decode(words + "=" * (-len(words) % 4))
