"""Stores the bytes of JSON values under their hashes."""

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
    body: bytes

    @classmethod
    def of(cls, body: bytes) -> "Blob":
        return cls(hashlib.sha256(body).hexdigest(), body)

    @property
    def ref(self) -> BlobRef:
        """The reference has no seal."""
        return BlobRef(sha256=self.sha256, size=len(self.body), preview=preview(self.body))


def add_blob(connection: Connection, blob: Blob, place: SessionKey | None) -> None:
    """`place` is the session whose turns may read the blob.

    With `None` the store owns it and keeps it permanently. Adding a blob again does not change its bytes.
    """
    tenant, session = place or ("", "")
    kept = {"sha256": blob.sha256, "tenant": tenant, "session": session}
    # A permanent blob exists once this row exists. One statement is enough, and turns do not compete for one row.
    if place is None and not insert_new(connection, BLOB_SESSIONS, kept):
        return
    share_blob(connection, blob.sha256)
    if place is not None:
        connection.execute(_build_blob_keeping(connection.dialect.name), kept)
    insert_new(connection, BLOBS, {"sha256": blob.sha256, "size": len(blob.body), "body": blob.body})


@cache
def _build_blob_keeping(dialect: str) -> Any:
    adding = (sqlite.insert if dialect == "sqlite" else postgresql.insert)(BLOB_SESSIONS)
    # Refresh the time, so that a blob in use does not count as old.
    again = {"kept_at": StoreClock()}
    return adding.on_conflict_do_update(index_elements=list(BLOB_SESSIONS.primary_key), set_=again)


def preview(body: bytes) -> str:
    """Return the start of a JSON string's text, or of other JSON as written."""
    # A character takes at most four bytes in UTF-8, so this is enough for the preview of a body of any size.
    shown: Any = body[: 4 * PREVIEW_CHARS].decode(errors="replace")
    if body.startswith(b'"'):
        with suppress(ValueError):
            shown = json.loads(body)
    # JSON may escape half a surrogate pair, which cannot be encoded as UTF-8 later.
    return str(shown)[:PREVIEW_CHARS].encode(errors="replace").decode()
