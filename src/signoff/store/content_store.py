"""Converts JSON values to `Content` and back: small values inline, others in the store."""

import hashlib
import hmac
import json
from typing import Any, Final

from signoff.contracts.call import Place
from signoff.contracts.canonical_json import canonical_json, json_bytes
from signoff.contracts.content import BlobRef, Content
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import SessionKey
from signoff.contracts.limits import INLINE_BYTES
from signoff.contracts.message import Message, Part, content_of
from signoff.formats.replace import replace
from signoff.store.store import Store

KEY: Final = "content"
_SEAL_CHARS: Final = 32


async def to_content(store: Store, value: Any, place: SessionKey) -> Content:
    """Stores up to 8 KiB of compact JSON inline.

    Larger values become a blob that only turns of session `place` can read. Raises `NotCanonical` for values that are
    not JSON, and `StoreUnavailable`.
    """
    body = json_bytes(value)
    if len(body) <= INLINE_BYTES:
        # Parse the JSON, so that small values come out like large ones: tuples as lists and keys as strings.
        return Content(inline=json.loads(body))
    return Content(blob=await keep(store, body, place))


async def keep(store: Store, body: bytes, place: SessionKey) -> BlobRef:
    """`body` is JSON for turns of the session `place` only. Raises `StoreUnavailable`."""
    return await seal_ref(store, await store.put_blob(body, place), place)


async def seal_ref(store: Store, ref: BlobRef, place: SessionKey) -> BlobRef:
    """The seal lets only turns of the session `place` read `ref`. Raises `StoreUnavailable`."""
    return replace(ref, seal=await _seal(store, ref.sha256, place))


async def load_in(store: Store, content: Content, place: SessionKey) -> Any:
    """Raises as `load`, also for content of another session.

    A workflow's owner can name any hash. Without the seal, the content of other sessions would be printed, judged or
    run as the workflow's own.
    """
    if content.blob is not None:
        await _check(store, content.blob, place)
    return await load(store, content)


async def load_message(store: Store, message: Message, place: SessionKey) -> Message:
    """Make all content inline. Raises as `load_in`."""
    parts: list[Part] = []
    for part in message.parts:
        field, content = content_of(part)
        inline = Content(inline=await load_in(store, content, place)) if content.blob else content
        parts.append(replace(part, **{field: inline}))
    return replace(message, parts=tuple(parts))


async def fetch_in(store: Store, ref: BlobRef, place: SessionKey) -> bytes | None:
    """Raises `StoreUnavailable` for bytes of another session."""
    await _check(store, ref, place)
    return await store.get_blob(ref.sha256)


async def load(store: Store, content: Content) -> Any:
    """Only for content named by a row of the store, or for a reader of everything.

    Raises `StoreUnavailable` if its blob is missing or does not match its hash.
    """
    if content.blob is None:
        return content.inline
    body = await store.get_blob(content.blob.sha256)
    if body is None:
        raise _missing(content.blob)
    # Blobs hold arguments and results: write access to rows must not allow replacing them unnoticed.
    if hashlib.sha256(body).hexdigest() != content.blob.sha256:
        raise StoreUnavailable(f"the blob `{content.blob.sha256[:12]}` was changed in the store")
    return json.loads(body)


async def _check(store: Store, ref: BlobRef, place: SessionKey) -> None:
    if not hmac.compare_digest(ref.seal.encode(), (await _seal(store, ref.sha256, place)).encode()):
        # Same message as for a missing blob, so as not to reveal that another session has it.
        raise _missing(ref)


async def seal_place(store: Store, session: SessionKey, place: Place) -> Place:
    """The seal proves that the session was put at `place`. Raises `StoreUnavailable`."""
    return replace(place, seal=await _seal_of(store, session, place))


async def is_sealed(store: Store, session: SessionKey, place: Place) -> bool:
    """Return whether a gateway or worker put the session at `place`.

    Raises `StoreUnavailable`.

    A workflow's owner can name any place. Without the seal, a turn would get tools that its requester did not ask for.
    """
    if not place.seal:
        return False
    # A message without an actor has a seal for the session's actor, with an empty name.
    seals = [await _seal_of(store, session, replace(place, actor=actor)) for actor in (place.actor, "")]
    return any(hmac.compare_digest(place.seal.encode(), each.encode()) for each in seals)


async def _seal_of(store: Store, session: SessionKey, place: Place) -> str:
    key = await store.secret_key(KEY)
    named = canonical_json(["place", *session, place.actor, place.route, place.step])
    return hmac.digest(key, named, "sha256").hex()[:_SEAL_CHARS]


async def _seal(store: Store, sha256: str, place: SessionKey) -> str:
    key = await store.secret_key(KEY)
    return hmac.digest(key, canonical_json([*place, sha256]), "sha256").hex()[:_SEAL_CHARS]


def _missing(ref: BlobRef) -> StoreUnavailable:
    return StoreUnavailable(f"the blob `{ref.sha256[:12]}` is not in this store")
