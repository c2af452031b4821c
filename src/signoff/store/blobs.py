"""Keeps the bytes of JSON values under their hashes."""

import hashlib
import json
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite

from signoff.contracts.content import BlobRef
from signoff.contracts.ids import SessionKey
from signoff.contracts.limits import PREVIEW_CHARS
from signoff.store.claim_conditions import insert_new, share_blob
from signoff.store.tables import BLOB_SESSIONS, BLOBS, StoreClock


class Blob(NamedTuple):
    """The bytes of a JSON value with their hash."""

    sha256: str
    """The sha-256 of `body`, in hex."""
    body: bytes
    """The bytes."""

    @classmethod
    def of(cls, body: bytes) -> "Blob":
        """Makes the blob of `body`."""
        return cls(hashlib.sha256(body).hexdigest(), body)

    @property
    def ref(self) -> BlobRef:
        """Returns a reference to the blob, without a seal."""
        return BlobRef(sha256=self.sha256, size=len(self.body), preview=preview(self.body))


def add_blob(connection: Connection, blob: Blob, place: SessionKey | None) -> None:
    """Adds a blob in the caller's transaction, for turns of the session `place`, or with None for the store itself,
    which keeps it for good; adding it again changes nothing of it.
    """
    tenant, session = place or ("", "")
    kept = {"sha256": blob.sha256, "tenant": tenant, "session": session}
    # What the store keeps for good is there once that is written: one statement, and no row that all turns change.
    if place is None and not insert_new(connection, BLOB_SESSIONS, kept):
        return
    share_blob(connection, blob.sha256)
    if place is not None:
        connection.execute(_build_blob_keeping(connection.dialect.name), kept)
    insert_new(connection, BLOBS, {"sha256": blob.sha256, "size": len(blob.body), "body": blob.body})


@cache
def _build_blob_keeping(dialect: str) -> Any:
    adding = (sqlite.insert if dialect == "sqlite" else postgresql.insert)(BLOB_SESSIONS)
    # The time anew: what was kept again is not old, whenever it was kept first.
    again = {"kept_at": StoreClock()}
    return adding.on_conflict_do_update(index_elements=list(BLOB_SESSIONS.primary_key), set_=again)


def preview(body: bytes) -> str:
    """Returns the first characters of a JSON string's text, of other JSON as it is written."""
    # A character has four bytes at most in UTF-8: enough for the preview, however large the body is.
    shown: Any = body[: 4 * PREVIEW_CHARS].decode(errors="replace")
    if body.startswith(b'"'):
        with suppress(ValueError):
            shown = json.loads(body)
    # JSON may escape half a surrogate pair, which nothing could write as UTF-8 later.
    return str(shown)[:PREVIEW_CHARS].encode(errors="replace").decode()
