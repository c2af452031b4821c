"""Seals values that leave the gateway and come back: whoever carries them can read them, and cannot change them."""

import base64
import hmac
import json
from dataclasses import dataclass, field
from typing import Any, Final

from signoff.store.store import Store

SEALED_CHARS: Final = 2_000


def seal(key: bytes, what: str, values: list[Any]) -> str:
    """Returns `values` (JSON) as text for an address or a cookie. `what` keeps seals of one kind from serving as
    another.
    """
    body = json.dumps(values, separators=(",", ":")).encode()
    return f"{_text(body)}.{_text(_mac(key, what, body))}"


def unseal(key: bytes, what: str, text: str) -> list[Any] | None:
    """Opens a sealed text; None for anything that this key did not seal as this."""
    written, _, seal = text.partition(".")
    try:
        # Before anything is decoded: whoever sends this has proved nothing yet.
        if len(text) > SEALED_CHARS:
            return None
        body, mac = _bytes(written), _bytes(seal)
    except ValueError:
        return None
    if not hmac.compare_digest(mac, _mac(key, what, body)):
        return None
    # Only what we sealed comes so far: nothing that a stranger wrote is parsed.
    values: list[Any] = json.loads(body)
    return values


@dataclass(frozen=True)
class StateSealer:
    """Seals by one key."""

    key: bytes = field(repr=False)

    def seal(self, what: str, values: list[Any]) -> str:
        """See `seal`."""
        return seal(self.key, what, values)

    def unseal(self, what: str, text: str) -> list[Any] | None:
        """See `unseal`."""
        return unseal(self.key, what, text)


async def plugin_sealer(store: Store, name: str) -> StateSealer:
    """Return what seals for plugins under a name. None of the core's own keys has such a name."""
    return StateSealer(await store.secret_key(f"plugin-{name}"))


def _mac(key: bytes, what: str, body: bytes) -> bytes:
    # No `what` holds a line end, so none can run on into the values of another.
    return hmac.new(key, f"{what}\n".encode() + body, "sha256").digest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    # The last character of base64 has bits to spare, so decoders take several texts for one value. The text of a link
    # is its delivery id: in another spelling one answer would count as two.
    if _text(data) != text:
        raise ValueError("there is one way to write a value")
    return data
