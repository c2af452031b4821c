"""Converts JSON values to `Content` and back: inline when small, in the store when not."""

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
    """Converts `value` to content: inline up to 8 KiB of compact JSON, else a blob that only turns of session `place`
    read.

    Raises `NotCanonical` for what is not JSON, `StoreUnavailable`.
    """
    body = json_bytes(value)
    if len(body) <= INLINE_BYTES:
        # Read back: a small value comes out as a large one does, tuples as lists and names as texts.
        return Content(inline=json.loads(body))
    return Content(blob=await keep(store, body, place))


async def keep(store: Store, body: bytes, place: SessionKey) -> BlobRef:
    """Keeps the bytes of a JSON value for turns of the session `place` alone. Raises `StoreUnavailable`."""
    return await seal_ref(store, await store.put_blob(body, place), place)


async def seal_ref(store: Store, ref: BlobRef, place: SessionKey) -> BlobRef:
    """Returns `ref` with the seal by which only turns of the session `place` can read it. Raises `StoreUnavailable`."""
    return replace(ref, seal=await _seal(store, ref.sha256, place))


async def load_in(store: Store, content: Content, place: SessionKey) -> Any:
    """Loads content that a workflow names as content of the session `place`. Raises as `load`, also for another
    session's.

    Whoever runs a workflow can name any hash; without the seal, content of others would be printed, judged or run as
    its own.
    """
    if content.blob is not None:
        await _check(store, content.blob, place)
    return await load(store, content)


async def load_message(store: Store, message: Message, place: SessionKey) -> Message:
    """Returns the message with all that it holds inline. Raises as `load_in`."""
    parts: list[Part] = []
    for part in message.parts:
        field, content = content_of(part)
        inline = Content(inline=await load_in(store, content, place)) if content.blob else content
        parts.append(replace(part, **{field: inline}))
    return replace(message, parts=tuple(parts))


async def fetch_in(store: Store, ref: BlobRef, place: SessionKey) -> bytes | None:
    """Reads the bytes that a workflow names as those of the session `place`. Raises `StoreUnavailable` for another
    session's.
    """
    await _check(store, ref, place)
    return await store.get_blob(ref.sha256)


async def load(store: Store, content: Content) -> Any:
    """Loads the value of content that a row of the store names, or that is named by somebody who may read all of it.

    Raises `StoreUnavailable` when its blob is missing or does not match its hash.
    """
    if content.blob is None:
        return content.inline
    body = await store.get_blob(content.blob.sha256)
    if body is None:
        raise _missing(content.blob)
    # Arguments and results lie here: whoever can write rows must not be able to exchange them unseen.
    if hashlib.sha256(body).hexdigest() != content.blob.sha256:
        raise StoreUnavailable(f"the blob `{content.blob.sha256[:12]}` was changed in the store")
    return json.loads(body)


async def _check(store: Store, ref: BlobRef, place: SessionKey) -> None:
    if not hmac.compare_digest(ref.seal.encode(), (await _seal(store, ref.sha256, place)).encode()):
        # In the words of what is not there: that others have kept this is nothing to tell.
        raise _missing(ref)


async def seal_place(store: Store, session: SessionKey, place: Place) -> Place:
    """Returns `place` with the seal that proves that the session was put there. Raises `StoreUnavailable`."""
    return replace(place, seal=await _seal_of(store, session, place))


async def is_sealed(store: Store, session: SessionKey, place: Place) -> bool:
    """Returns whether a gateway or worker put the session at `place`. Raises `StoreUnavailable`.

    Whoever runs a workflow can name any place; without the seal, a turn would have tools that its requester did not
    ask for.
    """
    if not place.seal:
        return False
    # A message need not name its actor: then the gateway sealed its place for the actor that the session talks to.
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
