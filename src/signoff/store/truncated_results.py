"""Stores the full text of truncated results as blobs.

Handles for reading them are valid in one turn only.
"""

import base64
import hashlib
import hmac
import json
from typing import Final, NamedTuple

from signoff.contracts.canonical_json import canonical_json, json_bytes
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.limits import RESULT_BYTES
from signoff.store.store import Store

KEY: Final = "rest"
_SHA_BYTES: Final = 32
_SEAL_BYTES: Final = 16


class ResultPiece(NamedTuple):
    """A piece of a stored text."""

    tool: str
    text: str
    start: int
    """The start of the piece in the text, in characters."""
    total: int
    """The length of the whole text in characters."""
    next_start: int | None
    """The start of the next piece, or `None` at the end."""


class TruncatedResults:
    """Stores and reads texts.

    Handles are sealed with a key of the store: they cannot be forged or used by another turn.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def keep(self, turn: TurnKey, tool: str, text: str) -> str:
        """Store `text`, or its first MiB, and return a handle for `turn`. Raises `StoreUnavailable`."""
        # If the cut is inside a character, drop the rest of it.
        whole = text.encode()[:RESULT_BYTES].decode("utf-8", "ignore")
        body = json_bytes({"v": 1, "tool": tool, "text": whole})
        blob = await self._store.put_blob(body, SessionKey(turn.tenant, turn.session))
        sha = bytes.fromhex(blob.sha256)
        return base64.urlsafe_b64encode(sha + await self._seal(turn, sha)).decode()

    async def read(self, turn: TurnKey, handle: str, start: int, chars: int) -> ResultPiece | None:
        """Return at most `chars` characters. `None` for a handle of another turn. Raises `StoreUnavailable`."""
        try:
            raw = base64.b64decode(handle, altchars=b"-_", validate=True)
        except ValueError:
            return None
        # Check the seal before reading: a hash alone, which others may know, gives no access.
        sha, seal = raw[:_SHA_BYTES], raw[_SHA_BYTES:]
        if not hmac.compare_digest(seal, await self._seal(turn, sha)):
            return None
        body = await self._store.get_blob(sha.hex())
        if body is None or hashlib.sha256(body).digest() != sha:
            raise StoreUnavailable(f"the blob `{sha.hex()[:12]}` is not in this store, or was changed there")
        content = json.loads(body)
        text: str = content["text"]
        # Callers' schemas require at least 0. Without this, Python would count a negative start from the end.
        piece = text[max(start, 0) :][: max(chars, 1)]
        end = start + len(piece)
        return ResultPiece(content["tool"], piece, start, len(text), end if end < len(text) else None)

    async def _seal(self, turn: TurnKey, sha: bytes) -> bytes:
        key = await self._store.secret_key(KEY)
        # The seal covers the turn: if another turn stored the same text, only its own handle works there.
        return hmac.digest(key, canonical_json([*turn, sha.hex()]), "sha256")[:_SEAL_BYTES]
