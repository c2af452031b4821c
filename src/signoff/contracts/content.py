"""JSON values, carried inline when small and by reference into the blob store when not."""

from typing import Any

from signoff.contracts.frozen_model import FrozenModel


class BlobRef(FrozenModel):
    """Names bytes of JSON in the store by their hash."""

    sha256: str
    """The hash, in hex."""
    size: int
    """How many bytes there are."""
    preview: str = ""
    """Their first characters as text."""
    seal: str = ""
    """Binds the reference to a session: a hash alone, which others may know, reads nothing."""


class Content(FrozenModel):
    """A JSON value: up to 8 KiB of JSON inline, more as a blob. Exactly one is meant; `blob` wins."""

    inline: Any = None
    """The value itself."""
    blob: BlobRef | None = None
    """The reference to the value."""


def text_of(content: Content) -> str:
    """Returns the text of a content, or its preview when it lies in the store; for one-line displays only."""
    if content.blob is not None:
        return content.blob.preview
    return content.inline if isinstance(content.inline, str) else ""
