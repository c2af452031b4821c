"""What is carried to readers: JSON values, inline when small and else by reference into the blob store, and remarks."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import Field

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


class Remark(FrozenModel):
    """A sentence that Signoff writes for people, who read it in their language: its text in the catalogue, and values.

    See `languages/remarks.py`.
    """

    code: str
    """The key of its text, without `remark.`."""
    values: "Mapping[str, str | Remark | tuple[str | Remark, ...]]" = Field(default_factory=dict)
    """Place of the text -> its words: a value, or remarks."""

    @classmethod
    def of(cls, code: str, /, **values: "str | Remark | tuple[str | Remark, ...]") -> "Remark":
        """Makes a remark of these values."""
        return cls(code=code, values=values)


Words: TypeAlias = str | Remark
"""A remark, or what a person or a tool's author wrote."""
