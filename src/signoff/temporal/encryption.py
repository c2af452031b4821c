"""Encrypts Temporal's data: a payload codec over AES-256-GCM that binds each payload to its workflow.

A payload is `binary/encrypted`. Its metadata names the key. Its data are 16 bytes of place, 12 of nonce, and the
ciphertext with its tag: one byte of form, then the JSON, or the whole payload for another kind.

The place is computed from namespace and workflow id, and authenticated with the ciphertext. It is compared if the SDK
names the payload's workflow: a payload moved to another workflow is not decrypted there. Signatures, not this, prove a
payload's writer.
"""

import hashlib
import logging
import secrets
from collections.abc import Sequence
from copy import copy
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ActivitySerializationContext,
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)

from signoff.contracts.errors import Unavailable
from signoff.keys.encryption_keys import EncryptionKeyRing

ENCODING: Final = b"binary/encrypted"
PLACE_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_KEY: Final = "key"
_JSON: Final = {"encoding": b"json/plain"}
_PLAIN_JSON: Final = b"\1"
_WHOLE: Final = b"\0"
_INTRODUCTIONS: Final = "introduced"
_INTRODUCTION_BYTES: Final = 200
_log = logging.getLogger(__name__)


class Encryption(NamedTuple):
    """An installation's encryption: its keys, and whether it writes encrypted or only decrypts."""

    keys: EncryptionKeyRing
    writes: bool = True

    def codec(self, namespace: str) -> "EncryptionCodec":
        return EncryptionCodec(self.keys, namespace, writes=self.writes)


class EncryptionKeyMissing(Unavailable):
    """Raised for a payload whose encryption key is unknown here."""


class EncryptionCodec(PayloadCodec, WithSerializationContext):
    """Encrypts payloads with the newest key and decrypts payloads of every key.

    Without `writes` it only decrypts: older data stays readable after encryption was turned off. `decode` returns
    plain, changed and moved payloads unchanged, and no converter can read the latter two. For a missing key that a
    known key has introduced, it raises `EncryptionKeyMissing`, so that Temporal retries the workflow's task until the
    key is available. Anyone can name other unknown keys: such payloads are returned unchanged, because a stranger's
    message must not stop a turn.
    """

    def __init__(self, keys: EncryptionKeyRing, namespace: str, *, writes: bool = True, workflow: str = "") -> None:
        self._keys = keys
        self._namespace = namespace
        self._writes = writes
        self._nowhere = place_of(namespace, "")
        self._place = place_of(namespace, workflow)

    @property
    def namespace(self) -> str:
        return self._namespace

    def with_context(self, context: SerializationContext) -> "EncryptionCodec":
        if isinstance(context, WorkflowSerializationContext | ActivitySerializationContext) and context.workflow_id:
            if context.namespace != self._namespace:
                return EncryptionCodec(self._keys, context.namespace, writes=self._writes, workflow=context.workflow_id)
            made = copy(self)
            made._place = place_of(self._namespace, context.workflow_id)
            return made
        return self

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        if not self._writes:
            return list(payloads)
        key, cipher = await self._keys.writer()
        metadata = {"encoding": ENCODING, _KEY: key.id.encode()}
        if key.introductions:
            metadata[_INTRODUCTIONS] = ",".join(key.introductions).encode()
        encoded = []
        for payload in payloads:
            nonce = secrets.token_bytes(_NONCE_BYTES)
            sealed = cipher.encrypt(nonce, _pack(payload), _bound(key.id, self._place))
            encoded.append(Payload(metadata=metadata, data=self._place + nonce + sealed))
        return encoded

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """See `PayloadCodec`. Raises `EncryptionKeyMissing`."""
        return [await self._decrypt(each) if is_encrypted(each) else each for each in payloads]

    async def _decrypt(self, payload: Payload) -> Payload:
        key_id = key_id_of(payload)
        place, nonce = payload.data[:PLACE_BYTES], payload.data[PLACE_BYTES : PLACE_BYTES + _NONCE_BYTES]
        # Without a context, the payload's workflow is unknown. Payloads written without one belong to no workflow.
        if self._place != self._nowhere and place not in (self._place, self._nowhere):
            return self._leave(payload, "an encrypted payload of another workflow was left unread")
        if len(payload.data) < PLACE_BYTES + _NONCE_BYTES + _TAG_BYTES:
            return payload
        cipher = await self._keys.reader(key_id)
        if cipher is None:
            # Log the truncated id only: a payload's writer can choose any key name.
            text = f"the encryption key {key_id[:16]!r} is missing in `{self._keys.reference}`: add it there"
            introductions = payload.metadata.get(_INTRODUCTIONS, b"")[:_INTRODUCTION_BYTES].decode("ascii", "replace")
            introduced = self._keys.introduces(key_id, introductions.split(","))
            if not introduced:
                return self._leave(payload, text, "unknown key")
            if self._keys.take_warning(key_id):
                _log.error("%s", text)
            raise EncryptionKeyMissing(text)
        try:
            plain = cipher.decrypt(nonce, payload.data[PLACE_BYTES + _NONCE_BYTES :], _bound(key_id, place))
            return _unpack(plain)
        except (InvalidTag, DecodeError):
            return self._leave(payload, "an encrypted payload was changed, and left unread")

    def _leave(self, payload: Payload, why: str, subject: str = "") -> Payload:
        if self._keys.take_warning(subject or why):
            _log.warning("%s", why)
        return payload


def place_of(namespace: str, workflow: str) -> bytes:
    """The bytes bind a workflow's payloads. With workflow "", the payloads belong to no workflow."""
    return hashlib.sha256(f"{namespace}\0{workflow}".encode("utf-8", "surrogatepass")).digest()[:PLACE_BYTES]


def is_encrypted(payload: Payload) -> bool:
    """Return whether a payload claims to be encrypted."""
    return payload.metadata.get("encoding") == ENCODING


def key_id_of(payload: Payload) -> str:
    """Return "" if the payload names no key."""
    return payload.metadata.get(_KEY, b"").decode("ascii", "replace")


def _pack(payload: Payload) -> bytes:
    # Encode the most frequent kind as one byte: each payload is stored, and billed, some twenty times a turn.
    if dict(payload.metadata) == _JSON:
        return _PLAIN_JSON + payload.data
    return _WHOLE + payload.SerializeToString()


def _unpack(plain: bytes) -> Payload:
    """Raise `DecodeError` for data that `_pack` does not write."""
    if plain[:1] == _PLAIN_JSON:
        return Payload(metadata=_JSON, data=plain[1:])
    if plain[:1] != _WHOLE:
        raise DecodeError("unknown form")
    return Payload.FromString(plain[1:])


def _bound(key_id: str, place: bytes) -> bytes:
    return b"signoff/1\0" + key_id.encode() + b"\0" + place
