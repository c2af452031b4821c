"""Signs and verifies by Ed25519: the gateway holds private keys and signs, workers hold public ones and check."""

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
    # A file of private keys that is handed to a worker is refused for its `private`, not read without it.
    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    created_at: AwareDatetime
    retired_at: AwareDatetime | None = None


class PublicKey(_Key):
    """One key to check with. `id` is computed from the key itself; from `retired_at` on it vouches for nothing new."""

    public: str

    @model_validator(mode="after")
    def _has_its_id(self) -> "PublicKey":
        if self.id != _id_of(_raw(self.public, KEY_BYTES)):
            # Signatures name the key by its id: a file that gave a key another one's id would let it sign for that one.
            raise ValueError("`id` is not the one of this key")
        return self


class PrivateKey(_Key):
    """One key to sign with, as the gateway's file holds it; its text form does not show it."""

    private: str = Field(repr=False)

    @model_validator(mode="after")
    def _has_its_id(self) -> "PrivateKey":
        if self.id != self.public_half().id:
            raise ValueError("`id` is not the one of this key")
        return self

    def load(self) -> Ed25519PrivateKey:
        """Returns the key as the library has it."""
        return Ed25519PrivateKey.from_private_bytes(_raw(self.private, KEY_BYTES))

    def public_half(self) -> PublicKey:
        """Returns the public key, for workers."""
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
        """Returns the public keys, for workers."""
        return PublicKeys(keys=tuple(key.public_half() for key in self.keys))


def new_key(now: datetime) -> PrivateKey:
    """Returns a fresh key, made at `now`."""
    key = Ed25519PrivateKey.generate()
    return PrivateKey(
        id=_id_of(key.public_key().public_bytes_raw()), created_at=now, private=_text(key.private_bytes_raw())
    )


class Signature(NamedTuple):
    """A signature."""

    key_id: str
    """The id of the key that made it."""
    signature: str
    """The signature in base64."""


class Signer:
    """Signs as the gateway, with the newest key that is not retired. Raises `ConfigError` when there is none."""

    def __init__(self, keys: PrivateKeys) -> None:
        usable = [key for key in keys.keys if key.retired_at is None]
        if not usable:
            raise ConfigError(
                "no signing key is in use, all are retired: make one with `signoff keys create`", field="signing_keys"
            )
        # By when it was made, not by its place in a file that people may edit.
        newest = max(usable, key=lambda key: key.created_at)
        self.key_id: Final = newest.id
        self._key = newest.load()
        self._public = keys.public()

    def sign_decision(self, decision: Decision) -> Decision:
        """Returns `decision` as the gateway vouches for it. Raises `NotCanonical`; ValueError without `received_at`."""
        if decision.received_at is None:
            raise ValueError("a signed decision says when it was received")
        # The time is signed as text: in one zone only has an instant one text.
        received = decision.received_at.astimezone(UTC)
        # The key's id is under the signature: nobody can put the signature down to another key.
        stamped = replace(decision, received_at=received, key_id=self.key_id, signature="")
        return replace(stamped, signature=self._sign(decision_bytes(stamped)))

    def sign_principal(self, ctx: CallContext) -> Principal:
        """Signs the user of `ctx`, made by `principal_as_asked`, as who asks exactly this. Raises `NotCanonical`."""
        stamped = replace(ctx.user, key_id=self.key_id, signature="")
        signed = self._sign(principal_bytes(replace(ctx, user=stamped)))
        return replace(stamped, signature=signed)

    def sign_bytes(self, purpose: str, body: bytes) -> Signature:
        """Signs anything else; by `purpose` what is signed for one use is never taken for another."""
        return Signature(self.key_id, self._sign(_add_purpose(purpose, body)))

    def verifier(self) -> "Verifier":
        """Returns a verifier of these keys, retired ones included."""
        return Verifier(self._public.keys)

    def _sign(self, body: bytes) -> str:
        return _text(self._key.sign(body))


class _Known(NamedTuple):
    key: Ed25519PublicKey
    retired_at: datetime | None


class Verifier:
    """Checks signatures with public keys alone; without keys it believes nothing. No check ever raises.

    A retired key vouches only for what is stamped before its `retired_at`.
    """

    def __init__(self, keys: Iterable[PublicKey] = ()) -> None:
        self._load(keys)

    @property
    def key_ids(self) -> tuple[str, ...]:
        """Returns the keys in force, retired ones included."""
        return tuple(self._index_keys())

    def check_decision(self, decision: Decision) -> bool:
        """Returns whether the gateway vouched for every field of this decision."""
        return self._holds(
            Signature(decision.key_id, decision.signature), decision.received_at, lambda: decision_bytes(decision)
        )

    def check_principal(self, ctx: CallContext) -> bool:
        """Returns whether the gateway vouched that the user of `ctx` asked for exactly this: turn, actor, place and
        context.
        """
        user = ctx.user
        if not is_as_asked(ctx):
            return False
        return self._holds(Signature(user.key_id, user.signature), user.issued_at, lambda: principal_bytes(ctx))

    def check_asker(self, question: Question) -> bool:
        """Returns whether the gateway vouched that the requester of a question asked for its turn, by its actor."""
        asker = question.requester
        turn = TurnKey(question.tenant, question.session, question.turn)
        if asker.actor not in ("", question.actor):
            return False
        written = partial(asker_bytes, asker, turn, channel=question.channel, context=question.context)
        return self._holds(Signature(asker.key_id, asker.signature), asker.issued_at, written)

    def check_bytes(self, purpose: str, body: bytes, mark: Signature, *, at: datetime) -> bool:
        """Returns whether `mark` was made over `body` for `purpose`; `at` is the time that `body` says it was made."""
        return self._holds(mark, at, lambda: _add_purpose(purpose, body))

    def _load(self, keys: Iterable[PublicKey]) -> None:
        self._keys: Mapping[str, _Known] = {
            key.id: _Known(Ed25519PublicKey.from_public_bytes(_raw(key.public, KEY_BYTES)), key.retired_at)
            for key in keys
        }

    def _index_keys(self) -> Mapping[str, _Known]:
        return self._keys

    def _holds(self, mark: Signature, at: datetime | None, signed: Callable[[], bytes]) -> bool:
        known = self._index_keys().get(mark.key_id)
        if known is None:
            # A worker that was not given the gateway's keys refuses everything; it should be seen why.
            # Cut and quoted: anybody who reaches a turn can choose this text.
            _log.warning("a signature names the key %r, which is not among the public keys here", mark.key_id[:32])
            return False
        # Without a zone it cannot be compared with `retired_at`: what cannot be judged is not believed.
        if at is None or at.tzinfo is None:
            return False
        # The signer wrote `at`: this ends a key that was replaced. One that was stolen has to leave the files.
        if known.retired_at is not None and at >= known.retired_at:
            return False
        try:
            known.key.verify(_raw(mark.signature, SIGNATURE_BYTES), signed())
        except (InvalidSignature, NotCanonical, ValueError):
            return False
        return True


def _add_purpose(purpose: str, body: bytes) -> bytes:
    # Decisions and principals are JSON objects: what begins otherwise is never one of them.
    return b"signoff " + purpose.encode() + b"\0" + body


def _id_of(public: bytes) -> str:
    # A name for people and logs; what is checked is the key that stands under it.
    return hashlib.sha256(public).hexdigest()[:_ID_CHARS]


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _raw(text: str, length: int) -> bytes:
    try:
        # Without `validate` Python skips what is not base64, and one signature could be written in many ways.
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != length:
        raise ValueError(f"not {length} bytes in base64")
    return raw
