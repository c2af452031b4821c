"""Reads, makes and renews the keys by which payloads in Temporal are encrypted: AES-256, several at a time."""

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
"""How long a second key is known before it encrypts, so that every process has its file by then."""
INTRODUCTIONS: Final = 3
"""By how many older keys a new one is introduced: so many rotations may pass by a process that still waits and loses
nothing. Each is 25 bytes of every payload.
"""
RENEW_SECONDS: Final = 30.0
"""How long keys are taken for the present ones before they are read again."""
_ASK_SECONDS: Final = 1.0
"""At most so often is a key that is missing looked for: whoever names keys that nobody has costs no more."""
_WARNING_SECONDS: Final = 60.0
_ID_CHARS: Final = 8
_MAKE: Final = "make one with `signoff keys create`, and give the file to every worker and gateway"
_log = logging.getLogger(__name__)


class EncryptionKey(BaseModel):
    """One key. `id` is computed from the key itself; from `writes_from` on it encrypts, and it always decrypts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    created_at: AwareDatetime
    writes_from: AwareDatetime
    introductions: tuple[str, ...] = ()
    """What the newest keys that were there before say of this one, each as its id, `:` and hex: whoever lacks this one
    knows by any of them that there is such a key. None for the first key.
    """
    secret: str = Field(repr=False)

    @model_validator(mode="after")
    def _has_its_id(self) -> "EncryptionKey":
        if self.id != _id_of(self.raw()):
            # Payloads name their key by its id: two keys of one id could not be told apart.
            raise ValueError("`id` is not the one of this key")
        return self

    def raw(self) -> bytes:
        """Returns the key's 32 bytes. Raises ValueError for anything else."""
        try:
            raw = base64.b64decode(self.secret, validate=True)
        except binascii.Error:
            raw = b""
        if len(raw) != KEY_BYTES:
            raise ValueError(f"a key is {KEY_BYTES} bytes in base64")
        return raw


class EncryptionKeys(BaseModel):
    """The keys of an installation, as their file holds them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: tuple[EncryptionKey, ...] = Field(min_length=1)


def new_encryption_key(now: datetime, known: Sequence[EncryptionKey] = ()) -> EncryptionKey:
    """Returns a fresh key, made at `now`; beside `known` ones it encrypts only after `ROTATION_DELAY`."""
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
    """Returns the keys of a file. Raises `ConfigError` where there are none, or other users can read them."""
    return read_private_file(path, EncryptionKeys, "encryption_keys", _MAKE)


def parse_encryption_keys(text: str, where: str) -> EncryptionKeys:
    """Reads the JSON of a file of keys that came from `where`. Raises `ConfigError`, which repeats nothing of it."""
    return parse_keys(text, where, EncryptionKeys, "encryption_keys", _MAKE)


def create_encryption_key(path: Path, now: datetime) -> EncryptionKey:
    """Makes a new key in the file `path`, beside those that are there. Raises `ConfigError`."""
    known = read_encryption_keys(path).keys if path.exists() else ()
    made = new_encryption_key(now, known)
    # The first one encrypts at once: of two that are made together, one must not take the place of the other.
    write_private(path, EncryptionKeys(keys=(*known, made)), replace=bool(known))
    if not known and read_encryption_keys(path).keys != (made,):
        raise ConfigError(f"somebody else made a key in `{path}` just now; that one counts", field="encryption_keys")
    return made


def ensure_encryption_keys(path: Path, now: datetime) -> EncryptionKeys:
    """Returns the keys of the development profile, made on first use. Raises `ConfigError`."""
    if not path.exists():
        # Of two that start at once the second must not put its key over the one that the first encrypts with.
        write_private(path, EncryptionKeys(keys=(new_encryption_key(now),)), replace=False)
    return read_encryption_keys(path)


class EncryptionKeyRing:
    """Holds the keys behind a reference, and reads them again as they change.

    `reference` is `file:PATH`, `env:NAME` or `secret:NAME`. What cannot be read leaves the keys known before in force.
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
        """Returns where the keys are read from."""
        return self._reference

    async def load(self) -> None:
        """Reads the keys. Raises `ConfigError` where there are none, `Unavailable` where their source is away."""
        kind, _, name = self._reference.partition(":")
        if kind == "file":
            found = await asyncio.to_thread(read_encryption_keys, Path(name))
        else:
            where = f"the secret behind `{self._reference}`"
            found = parse_encryption_keys(await self._provider.read(self._reference), where)
        # By when they encrypt, not by their place in a file that people may edit.
        self._keys = tuple(sorted(found.keys, key=lambda key: key.writes_from))
        self._ciphers = {key.id: AESGCM(key.raw()) for key in self._keys}
        self._read_at = time.monotonic()

    async def writer(self) -> tuple[EncryptionKey, AESGCM]:
        """Returns the key that encrypts now, the newest whose time has come, and its cipher."""
        # One waits for a source that takes its time; the others go on by the keys that they have.
        if not self._renewing.locked():
            await self._renew(RENEW_SECONDS)
        now = self._clock()
        due = [key for key in self._keys if key.writes_from <= now]
        # Where no time has come by this machine's clock, the oldest: nothing may be written in plain words for that.
        chosen = due[-1] if due else self._keys[0]
        return chosen, self._ciphers[chosen.id]

    async def reader(self, key_id: str) -> AESGCM | None:
        """Returns the cipher of a key, which is looked for once more where it is not known; None where nobody has
        it.
        """
        if key_id not in self._ciphers:
            await self._renew(_ASK_SECONDS)
        return self._ciphers.get(key_id)

    def introduces(self, key_id: str, introductions: Sequence[str]) -> bool:
        """Returns whether a key that is known here says that there is a key `key_id`, which may be unknown here."""
        known = [f"{key.id}:{_introduce(key.raw(), key_id)}".encode() for key in self._keys]
        given = [each.encode("utf-8", "replace") for each in introductions[:INTRODUCTIONS]]
        return any(hmac.compare_digest(each, other) for each in given for other in known)

    def take_warning(self, subject: str) -> bool:
        """Takes the one warning a minute that there is of `subject`; returns False where it is taken.

        A list reads hundreds of payloads, and whoever sends some must write no log full.
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
            # Whoever waited for the lock finds it done.
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
