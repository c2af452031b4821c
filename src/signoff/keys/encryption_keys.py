"""Reads, creates and rotates the keys (AES-256) that encrypt payloads in Temporal. Several may be valid."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from signoff.contracts.clock import Clock, system_clock
from signoff.contracts.errors import ConfigError, SignoffError
from signoff.keys.key_files import parse_keys, read_private_file, write_private
from signoff.keys.secrets import SecretProvider

KEY_BYTES: Final = 32
ROTATION_DELAY: Final = timedelta(minutes=10)
"""How long a second key is known before it encrypts.

Every process must have its file by then.
"""
INTRODUCTIONS: Final = 3
"""The number of older keys that introduce a new one.

A process that has missed so many rotations and waits for the new key loses nothing. Each introduction adds 25 bytes to
every payload.
"""
RENEW_SECONDS: Final = 30.0
"""How long keys are used before they are read again."""
_ASK_SECONDS: Final = 1.0
"""The minimum interval of searches for a missing key, so that forged key ids are cheap."""
_WARNING_SECONDS: Final = 60.0
_ID_CHARS: Final = 8
_MAKE: Final = "make one with `signoff keys create`, and give the file to every worker and gateway"
_log = logging.getLogger(__name__)


class EncryptionKey(BaseModel):
    """One key.

    `id` is computed from the key. It encrypts from `writes_from` on, and always decrypts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    created_at: AwareDatetime
    writes_from: AwareDatetime
    introductions: tuple[str, ...] = ()
    """Introductions by the newest older keys, each as the older key's id, `:` and hex.

    A process that lacks this key learns from any of them that the key exists. Empty for the first key.
    """
    secret: str = Field(repr=False)

    @model_validator(mode="after")
    def _has_its_id(self) -> "EncryptionKey":
        if self.id != _id_of(self.raw()):
            # Payloads name their key by its id: two keys with one id could not be distinguished.
            raise ValueError("`id` is not the one of this key")
        return self

    def raw(self) -> bytes:
        """Raise `ValueError` unless the key has 32 bytes."""
        try:
            raw = base64.b64decode(self.secret, validate=True)
        except binascii.Error:
            raw = b""
        if len(raw) != KEY_BYTES:
            raise ValueError(f"a key is {KEY_BYTES} bytes in base64")
        return raw


class EncryptionKeys(BaseModel):
    """The keys of an installation, as stored in their file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: tuple[EncryptionKey, ...] = Field(min_length=1)


def new_encryption_key(now: datetime, known: Sequence[EncryptionKey] = ()) -> EncryptionKey:
    """If there are `known` keys, the new one encrypts only after `ROTATION_DELAY`."""
    raw = secrets.token_bytes(KEY_BYTES)
    older = sorted(known, key=lambda key: key.writes_from, reverse=True)[:INTRODUCTIONS]
    return EncryptionKey(
        id=_id_of(raw),
        created_at=now,
        writes_from=max(now, older[0].writes_from) + ROTATION_DELAY if older else now,
        introductions=tuple(f"{key.id}:{_introduce(key.raw(), _id_of(raw))}" for key in older),
        secret=base64.b64encode(raw).decode("ascii"),
    )


def read_encryption_keys(path: Path) -> EncryptionKeys:
    """Raise `ConfigError` if there are no keys, or other users can read them."""
    return read_private_file(path, EncryptionKeys, "encryption_keys", _MAKE)


def parse_encryption_keys(text: str, where: str) -> EncryptionKeys:
    """Parse the JSON of a key file. Raises `ConfigError`, which does not quote it."""
    return parse_keys(text, where, EncryptionKeys, "encryption_keys", _MAKE)


def create_encryption_key(path: Path, now: datetime) -> EncryptionKey:
    """Keep existing keys in the file. Raises `ConfigError`."""
    known = read_encryption_keys(path).keys if path.exists() else ()
    new = new_encryption_key(now, known)
    # The first key encrypts at once: of two created at the same time, one must not replace the other.
    write_private(path, EncryptionKeys(keys=(*known, new)), replace=bool(known))
    if not known and read_encryption_keys(path).keys != (new,):
        raise ConfigError(f"another process has just created a key in `{path}`; it applies", field="encryption_keys")
    return new


def ensure_encryption_keys(path: Path, now: datetime) -> EncryptionKeys:
    """Create the development profile's keys at first use. Raises `ConfigError`."""
    if not path.exists():
        # If two processes start at once, the second must not overwrite the key with which the first encrypts.
        write_private(path, EncryptionKeys(keys=(new_encryption_key(now),)), replace=False)
    return read_encryption_keys(path)


class EncryptionKeyRing:
    """Holds the keys behind a reference, and reads them again when they change.

    `reference` is `file:PATH`, `env:NAME` or `secret:NAME`. If reading fails, the previous keys stay valid.
    """

    def __init__(self, reference: str, provider: SecretProvider, *, clock: Clock = system_clock) -> None:
        self._reference = reference
        self._provider = provider
        self._clock = clock
        self._keys: tuple[EncryptionKey, ...] = ()
        self._ciphers: dict[str, AESGCM] = {}
        self._read_at = 0.0
        self._warned: dict[str, float] = {}
        self._renewing = asyncio.Lock()

    @property
    def reference(self) -> str:
        return self._reference

    async def load(self) -> None:
        """Raise `ConfigError` without keys, and `Unavailable` if their source is down."""
        kind, _, name = self._reference.partition(":")
        if kind == "file":
            loaded = await asyncio.to_thread(read_encryption_keys, Path(name))
        else:
            where = f"the secret behind `{self._reference}`"
            loaded = parse_encryption_keys(await self._provider.read(self._reference), where)
        # Sort by the start of encryption instead of by place: people may edit the file.
        self._keys = tuple(sorted(loaded.keys, key=lambda key: key.writes_from))
        self._ciphers = {key.id: AESGCM(key.raw()) for key in self._keys}
        self._read_at = time.monotonic()

    async def writer(self) -> tuple[EncryptionKey, AESGCM]:
        # One caller waits for a slow source. The others continue with the keys that they have.
        if not self._renewing.locked():
            await self._renew(RENEW_SECONDS)
        now = self._clock()
        due = [key for key in self._keys if key.writes_from <= now]
        # If no key has started by this machine's clock, use the oldest: never write plain text.
        chosen = due[-1] if due else self._keys[0]
        return chosen, self._ciphers[chosen.id]

    async def reader(self, key_id: str) -> AESGCM | None:
        """Read the keys again for an unknown one. Returns `None` if it does not exist."""
        if key_id not in self._ciphers:
            await self._renew(_ASK_SECONDS)
        return self._ciphers.get(key_id)

    def introduces(self, key_id: str, introductions: Sequence[str]) -> bool:
        """Return whether a known key introduces `key_id`, which may be unknown here."""
        expected = [f"{key.id}:{_introduce(key.raw(), key_id)}".encode() for key in self._keys]
        claims = [each.encode("utf-8", "replace") for each in introductions[:INTRODUCTIONS]]
        return any(hmac.compare_digest(each, other) for each in claims for other in expected)

    def take_warning(self, subject: str) -> bool:
        """True at most once a minute for a subject.

        A list reads hundreds of payloads, and an attacker who sends some must not fill the log.
        """
        now = time.monotonic()
        if now - self._warned.get(subject, -_WARNING_SECONDS) < _WARNING_SECONDS:
            return False
        self._warned[subject] = now
        return True

    async def _renew(self, after: float) -> None:
        if time.monotonic() - self._read_at < after:
            return
        async with self._renewing:
            # Another caller may have done it while this one waited for the lock.
            if time.monotonic() - self._read_at < after:
                return
            try:
                await self.load()
            except SignoffError as error:
                self._read_at = time.monotonic()
                _log.warning("the encryption keys known before stay in force: %s", error.message)


def _introduce(raw: bytes, key_id: str) -> str:
    return hmac.digest(raw, b"signoff introduces\0" + key_id.encode("utf-8", "replace"), "sha256")[:8].hex()


def _id_of(raw: bytes) -> str:
    return hashlib.sha256(b"signoff encryption key\0" + raw).hexdigest()[:_ID_CHARS]
