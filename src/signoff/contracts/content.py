"""JSON values, inline if small, otherwise as references into the blob store; and remarks."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import Field

from signoff.contracts.frozen_model import FrozenModel


class BlobRef(FrozenModel):
    """A reference to JSON bytes in the store, by their hash."""

    sha256: str
    """The hash, in hex."""
    size: int
    """Number of bytes."""
    preview: str = ""
    """The first characters as text."""
    seal: str = ""
    """Binds the reference to a session: the hash alone, which may be known, reads nothing."""


class Content(FrozenModel):
    """A JSON value: up to 8 KiB of JSON inline, more as a blob. Set exactly one. `blob` wins."""

    inline: Any = None
    blob: BlobRef | None = None
    """The reference to the value."""


def text_of(content: Content) -> str:
    """Return a stored text, or the preview of a long value. "" for other values.

    Only for one-line displays.
    """
    if content.blob is not None:
        return content.blob.preview
    return content.inline if isinstance(content.inline, str) else ""


class Remark(FrozenModel):
    """A sentence from Signoff, translated for its reader: a key of the catalogue, and values.

    See `languages/remarks.py`.
    """

    code: str
    """The key of its text, without `remark.`."""
    values: "Mapping[str, str | Remark | tuple[str | Remark, ...]]" = Field(default_factory=dict)
    """Maps each placeholder of the text to a value or remarks."""

    @classmethod
    def of(cls, code: str, /, **values: "str | Remark | tuple[str | Remark, ...]") -> "Remark":
        return cls(code=code, values=values)


Words: TypeAlias = str | Remark
"""A remark, or text of a person or a tool's author."""
