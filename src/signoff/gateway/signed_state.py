"""Seals values that leave the gateway and return. Their bearer can read them, but cannot change them."""

import base64
import hmac
import json
from dataclasses import dataclass, field
from typing import Any, Final

from signoff.store.store import Store

SEALED_CHARS: Final = 2_000


def seal(key: bytes, what: str, values: list[Any]) -> str:
    """`values` are JSON. `what` separates different kinds of seals."""
    body = json.dumps(values, separators=(",", ":")).encode()
    return f"{_text(body)}.{_text(_mac(key, what, body))}"


def unseal(key: bytes, what: str, text: str) -> list[Any] | None:
    """Open a sealed text. `None` if this key did not seal it as this kind."""
    written, _, seal = text.partition(".")
    try:
        # Check the length before decoding: the sender is not authenticated.
        if len(text) > SEALED_CHARS:
            return None
        body, mac = _bytes(written), _bytes(seal)
    except ValueError:
        return None
    if not hmac.compare_digest(mac, _mac(key, what, body)):
        return None
    # The seal is verified, so this parses no stranger's text.
    values: list[Any] = json.loads(body)
    return values


@dataclass(frozen=True)
class StateSealer:
    """Seals with one key."""

    key: bytes = field(repr=False)

    def seal(self, what: str, values: list[Any]) -> str:
        return seal(self.key, what, values)

    def unseal(self, what: str, text: str) -> list[Any] | None:
        return unseal(self.key, what, text)


async def plugin_sealer(store: Store, name: str) -> StateSealer:
    """No key of the core has such a name."""
    return StateSealer(await store.secret_key(f"plugin-{name}"))


def _mac(key: bytes, what: str, body: bytes) -> bytes:
    # No `what` holds a line end, so one kind cannot run into another's values.
    return hmac.new(key, f"{what}\n".encode() + body, "sha256").digest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    # The last base64 character has spare bits, so several texts decode to one value. A link's text is its delivery id:
    # two spellings would count one answer twice.
    if _text(data) != text:
        raise ValueError("there is one way to write a value")
    return data
