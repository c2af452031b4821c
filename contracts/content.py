"""Content: JSON carried inline when small, by reference into the blob store when not."""

from typing import Any

from signoff.contracts.frozen_model import Shape


class BlobRef(Shape):
    """Bytes of JSON in `store/`, named by their hash; `preview` is their first characters as text.

    `seal` says of which session they are: a hash alone, which others may know, reads nothing.
    """

    sha256: str
    size: int
    preview: str = ""
    seal: str = ""


class Content(Shape):
    """A JSON value: `inline` up to 8 KiB of JSON, else `blob`. Exactly one is meant; `blob` wins."""

    inline: Any = None
    blob: BlobRef | None = None


def text_of(content: Content) -> str:
    """The text of a content, or its preview when it lies in the store; for one-line displays only."""
    if content.blob is not None:
        return content.blob.preview
    return content.inline if isinstance(content.inline, str) else ""
