import hashlib
import json
import secrets
from dataclasses import dataclass, field
from typing import Any, Final

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from signoff.contracts.decision import PasskeyAssertion
from signoff.keys.passkeys import encode

PRESENT: Final = 0x01
VERIFIED: Final = 0x04
_ATTESTED: Final = 0x40


@dataclass
class PasskeyDevice:
    """An authenticator. `count` is its counter, which it does not raise if `counts` is false."""

    rp_id: str
    origin: str
    flags: int = PRESENT | VERIFIED
    count: int = 0
    counts: bool = True
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    credential: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    @property
    def public_key(self) -> bytes:
        numbers = self.key.public_key().public_numbers()
        return cbor2.dumps({1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32), -3: numbers.y.to_bytes(32)})

    def answer(self, challenge: str, nonce: str, **client: Any) -> PasskeyAssertion:
        """`challenge` is in base64url. `client` replaces fields of the browser's data."""
        data = self._data(self.flags)
        written = self._client("webauthn.get", challenge, client)
        signature = self.key.sign(data + hashlib.sha256(written).digest(), ec.ECDSA(SHA256()))
        return PasskeyAssertion(
            credential=encode(self.credential),
            nonce=nonce,
            authenticator_data=encode(data),
            client_data=encode(written),
            signature=encode(signature),
        )

    def create(self, challenge: str, **client: Any) -> dict[str, Any]:
        length = len(self.credential).to_bytes(2)
        data = self._data(self.flags | _ATTESTED) + bytes(16) + length + self.credential + self.public_key
        attestation = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        written = self._client("webauthn.create", challenge, client)
        name = encode(self.credential)
        response = {"attestationObject": encode(attestation), "clientDataJSON": encode(written)}
        return {"id": name, "rawId": name, "type": "public-key", "response": response}

    def _data(self, flags: int) -> bytes:
        self.count += self.counts
        return hashlib.sha256(self.rp_id.encode()).digest() + bytes([flags]) + self.count.to_bytes(4)

    def _client(self, kind: str, challenge: str, client: dict[str, Any]) -> bytes:
        fields = {"type": kind, "challenge": challenge, "origin": self.origin, "crossOrigin": False}
        return json.dumps(fields | client).encode()
