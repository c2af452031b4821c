"""Signs and verifies with Ed25519: the gateway has private keys, workers have public ones."""

import base64
import binascii
import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from signoff.contracts.approval import Question
from signoff.contracts.call import CallContext
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.decision import Decision
from signoff.contracts.errors import ConfigError
from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Principal
from signoff.formats.replace import replace
from signoff.keys.signature_form import asker_bytes, decision_bytes, is_as_asked, principal_bytes

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
_ID_CHARS: Final = 16
_log = logging.getLogger(__name__)


class _Key(BaseModel):
    # A file of private keys given to a worker must fail because of its `private` field, not be read without it.
    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    created_at: AwareDatetime
    retired_at: AwareDatetime | None = None


class PublicKey(_Key):
    """One key for verification.

    `id` is computed from the key.

    From `retired_at` on, it verifies nothing new.
    """

    public: str

    @model_validator(mode="after")
    def _has_its_id(self) -> "PublicKey":
        if self.id != _id_of(_raw(self.public, KEY_BYTES)):
            # Signatures name the key by its id: with another key's id in the file, a key could sign for that one.
            raise ValueError("`id` is not the one of this key")
        return self


class PrivateKey(_Key):
    """One key for signing, as stored in the gateway's file. Its text form does not show it."""

    private: str = Field(repr=False)

    @model_validator(mode="after")
    def _has_its_id(self) -> "PrivateKey":
        if self.id != self.public_half().id:
            raise ValueError("`id` is not the one of this key")
        return self

    def load(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(_raw(self.private, KEY_BYTES))

    def public_half(self) -> PublicKey:
        raw = self.load().public_key().public_bytes_raw()
        return PublicKey(id=_id_of(raw), created_at=self.created_at, retired_at=self.retired_at, public=_text(raw))


class PublicKeys(BaseModel):
    """The keys of a worker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: tuple[PublicKey, ...] = ()


class PrivateKeys(BaseModel):
    """The keys of the gateway."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: tuple[PrivateKey, ...] = ()

    def public(self) -> PublicKeys:
        return PublicKeys(keys=tuple(key.public_half() for key in self.keys))


def new_key(now: datetime) -> PrivateKey:
    key = Ed25519PrivateKey.generate()
    return PrivateKey(
        id=_id_of(key.public_key().public_bytes_raw()), created_at=now, private=_text(key.private_bytes_raw())
    )


class Signature(NamedTuple):
    """An Ed25519 signature."""

    key_id: str
    signature: str
    """In base64."""


class Signer:
    """Signs as the gateway, with the newest active key. Raises `ConfigError` if there is none."""

    def __init__(self, keys: PrivateKeys) -> None:
        usable = [key for key in keys.keys if key.retired_at is None]
        if not usable:
            raise ConfigError(
                "no signing key is in use, all are retired: make one with `signoff keys create`", field="signing_keys"
            )
        # Choose by time of creation instead of place: people may edit the file.
        newest = max(usable, key=lambda key: key.created_at)
        self.key_id: Final = newest.id
        self._key = newest.load()
        self._public = keys.public()

    def sign_decision(self, decision: Decision) -> Decision:
        """Raise `NotCanonical`, and `ValueError` without `received_at`."""
        if decision.received_at is None:
            raise ValueError("a signed decision says when it was received")
        # The time is signed as text: only in one zone does a time have a single text.
        received = decision.received_at.astimezone(UTC)
        # The signature covers the key's id, so that it cannot be attributed to another key.
        stamped = replace(decision, received_at=received, key_id=self.key_id, signature="")
        return replace(stamped, signature=self._sign(decision_bytes(stamped)))

    def sign_principal(self, ctx: CallContext) -> Principal:
        """Sign the user of `ctx` as the requester of exactly this turn. Raises `NotCanonical`.

        `principal_as_asked` made the user.
        """
        stamped = replace(ctx.user, key_id=self.key_id, signature="")
        signed = self._sign(principal_bytes(replace(ctx, user=stamped)))
        return replace(stamped, signature=signed)

    def sign_bytes(self, purpose: str, body: bytes) -> Signature:
        """`purpose` prevents a signature for one use from passing for another."""
        return Signature(self.key_id, self._sign(_add_purpose(purpose, body)))

    def verifier(self) -> "Verifier":
        """Include retired keys."""
        return Verifier(self._public.keys)

    def _sign(self, body: bytes) -> str:
        return _text(self._key.sign(body))


class _Known(NamedTuple):
    key: Ed25519PublicKey
    retired_at: datetime | None


class Verifier:
    """Verifies signatures with public keys.

    Without keys it accepts nothing. No check raises.

    A retired key is valid only for data with a time before its `retired_at`.
    """

    def __init__(self, keys: Iterable[PublicKey] = ()) -> None:
        self._load(keys)

    @property
    def key_ids(self) -> tuple[str, ...]:
        """Includes retired keys."""
        return tuple(self._index_keys())

    def check_decision(self, decision: Decision) -> bool:
        """The gateway must have signed every field."""
        return self._holds(
            Signature(decision.key_id, decision.signature), decision.received_at, lambda: decision_bytes(decision)
        )

    def check_principal(self, ctx: CallContext) -> bool:
        """The signature covers the turn, actor, place and context."""
        user = ctx.user
        if not is_as_asked(ctx):
            return False
        return self._holds(Signature(user.key_id, user.signature), user.issued_at, lambda: principal_bytes(ctx))

    def check_asker(self, question: Question) -> bool:
        """The signature covers the question's turn and actor."""
        asker = question.requester
        turn = TurnKey(question.tenant, question.session, question.turn)
        if asker.actor not in ("", question.actor):
            return False
        written = partial(asker_bytes, asker, turn, channel=question.channel, context=question.context)
        return self._holds(Signature(asker.key_id, asker.signature), asker.issued_at, written)

    def check_bytes(self, purpose: str, body: bytes, mark: Signature, *, at: datetime) -> bool:
        """`at` is the time stated in `body`."""
        return self._holds(mark, at, lambda: _add_purpose(purpose, body))

    def _load(self, keys: Iterable[PublicKey]) -> None:
        self._keys: Mapping[str, _Known] = {
            key.id: _Known(Ed25519PublicKey.from_public_bytes(_raw(key.public, KEY_BYTES)), key.retired_at)
            for key in keys
        }

    def _index_keys(self) -> Mapping[str, _Known]:
        return self._keys

    def _holds(self, mark: Signature, at: datetime | None, signed: Callable[[], bytes]) -> bool:
        key_now = self._index_keys().get(mark.key_id)
        if key_now is None:
            # A worker without the gateway's keys refuses everything: log the reason. Cut and quote the key id, because
            # anyone who reaches a turn can choose it.
            _log.warning("a signature names the key %r, which is not among the public keys here", mark.key_id[:32])
            return False
        # Without a zone it cannot be compared with `retired_at`: reject it.
        if at is None or at.tzinfo is None:
            return False
        # The signer chose `at`: this retires a replaced key. A stolen key must be removed from the files.
        if key_now.retired_at is not None and at >= key_now.retired_at:
            return False
        try:
            key_now.key.verify(_raw(mark.signature, SIGNATURE_BYTES), signed())
        except (InvalidSignature, NotCanonical, ValueError):
            return False
        return True


def _add_purpose(purpose: str, body: bytes) -> bytes:
    # Decisions and principals are JSON objects, so that this prefix excludes them.
    return b"signoff " + purpose.encode() + b"\0" + body


def _id_of(public: bytes) -> str:
    # A name for people and logs. Verification uses the key itself.
    return hashlib.sha256(public).hexdigest()[:_ID_CHARS]


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _raw(text: str, length: int) -> bytes:
    try:
        # Without `validate`, Python skips other characters, and one signature could have many encodings.
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != length:
        raise ValueError(f"not {length} bytes in base64")
    return raw
