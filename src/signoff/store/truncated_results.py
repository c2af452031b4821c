"""Keeps the full text of truncated results as blobs, read by handles that are good in one turn only."""

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
    """A piece of a kept text."""

    tool: str
    """The tool whose result it is."""
    text: str
    """The characters of this piece."""
    start: int
    """Where the piece begins in the text, in characters."""
    total: int
    """How many characters the text has in all."""
    next_start: int | None
    """Where the next piece begins, or None at the end."""


class TruncatedResults:
    """Keeps and reads texts.

    Handles are sealed under a key of the store: nobody makes one, or uses one of another turn.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def keep(self, turn: TurnKey, tool: str, text: str) -> str:
        """Keeps `text`, or its first MiB, and returns the handle by which `turn` reads it. Raises
        `StoreUnavailable`.
        """
        # The cut may fall inside a character, of which the rest is dropped.
        whole = text.encode()[:RESULT_BYTES].decode("utf-8", "ignore")
        body = json_bytes({"v": 1, "tool": tool, "text": whole})
        blob = await self._store.put_blob(body, SessionKey(turn.tenant, turn.session))
        sha = bytes.fromhex(blob.sha256)
        return base64.urlsafe_b64encode(sha + await self._seal(turn, sha)).decode()

    async def read(self, turn: TurnKey, handle: str, start: int, chars: int) -> ResultPiece | None:
        """Returns at most `chars` characters from `start`; None for a handle that is not one of this turn.

        Raises `StoreUnavailable`.
        """
        try:
            raw = base64.b64decode(handle, altchars=b"-_", validate=True)
        except ValueError:
            return None
        # The seal before the store is asked: a hash alone, which others may know, reads nothing.
        sha, seal = raw[:_SHA_BYTES], raw[_SHA_BYTES:]
        if not hmac.compare_digest(seal, await self._seal(turn, sha)):
            return None
        body = await self._store.get_blob(sha.hex())
        if body is None or hashlib.sha256(body).digest() != sha:
            raise StoreUnavailable(f"the blob `{sha.hex()[:12]}` is not in this store, or was changed there")
        kept = json.loads(body)
        text: str = kept["text"]
        # Callers' schemas want 0 or more; past them, Python would count a negative start from the end.
        piece = text[max(start, 0) :][: max(chars, 1)]
        end = start + len(piece)
        return ResultPiece(kept["tool"], piece, start, len(text), end if end < len(text) else None)

    async def _seal(self, turn: TurnKey, sha: bytes) -> bytes:
        key = await self._store.secret_key(KEY)
        # The turn is under the seal: a text that another turn kept, too, is still read by that turn's handle alone.
        return hmac.digest(key, canonical_json([*turn, sha.hex()]), "sha256")[:_SEAL_BYTES]
