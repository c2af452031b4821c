"""JSON values as `Content`: inline when small, in the store when not."""

import hashlib
import json
from typing import Any

from signoff.contracts.canonical import NotCanonical
from signoff.contracts.content import Content
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.limits import INLINE_BYTES
from signoff.store.store import Store


def json_bytes(value: Any) -> bytes:
    """`value` as compact JSON in UTF-8. Raises `NotCanonical` for what is not JSON: NaN, lone surrogates, objects."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        # Only the type's name goes on: the texts of some of these quote the value.
        raise NotCanonical(f"not JSON: {type(error).__name__}") from None


async def to_content(store: Store, value: Any) -> Content:
    """`value` inline up to 8 KiB of compact JSON, else kept in the store.

    Raises `NotCanonical` for what is not JSON, `StoreUnavailable`.
    """
    body = json_bytes(value)
    if len(body) <= INLINE_BYTES:
        # Read back: a small value comes out as a large one does, tuples as lists and names as texts.
        return Content(inline=json.loads(body))
    return Content(blob=await store.put_blob(body))


async def load(store: Store, content: Content) -> Any:
    """The value of `content`. Raises `StoreUnavailable` when its blob is missing or is not what its hash says."""
    if content.blob is None:
        return content.inline
    body = await store.get_blob(content.blob.sha256)
    if body is None:
        raise StoreUnavailable(f"the blob `{content.blob.sha256[:12]}` is not in this store")
    # Arguments and results lie here: whoever can write rows must not be able to exchange them unseen.
    if hashlib.sha256(body).hexdigest() != content.blob.sha256:
        raise StoreUnavailable(f"the blob `{content.blob.sha256[:12]}` was changed in the store")
    return json.loads(body)
