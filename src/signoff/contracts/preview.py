"""The preview of a call: typed parts that show approvers its effect before it runs. No part holds active content."""

import base64
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer

from signoff.contracts.content import Content
from signoff.contracts.frozen_model import FrozenModel


def _decode(given: Any) -> Any:
    return base64.b64decode(given, validate=True) if isinstance(given, str) else given


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


Base64: TypeAlias = Annotated[
    bytes,
    BeforeValidator(_decode, json_schema_input_type=str),
    PlainSerializer(_encode, return_type=str, when_used="json"),
]


class PreviewPart(FrozenModel):
    """One part of a preview."""

    name: str = ""
    """Names the part for the tool's `binds`. Unique within a preview."""
    title: str = ""
    """A heading for approvers."""


class Text(PreviewPart):
    """Plain text."""

    kind: Literal["text"] = "text"
    text: str


class Markdown(PreviewPart):
    """Text in Markdown. Approvers see headings, lists, emphasis and code, but no links, images or HTML."""

    kind: Literal["markdown"] = "markdown"
    text: str


class Code(PreviewPart):
    """Source code."""

    kind: Literal["code"] = "code"
    text: str
    language: str = ""
    """Its language, such as `python`."""


class Diff(PreviewPart):
    """A text before and after the call, shown line by line."""

    kind: Literal["diff"] = "diff"
    before: str
    after: str


Cell: TypeAlias = str | int | float | bool | None


class Table(PreviewPart):
    """Rows of values under named columns."""

    kind: Literal["table"] = "table"
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    """Each row has one value for each column."""


class Email(PreviewPart):
    """An e-mail as the call would send it."""

    kind: Literal["email"] = "email"
    to: tuple[str, ...]
    """The addresses of its recipients."""
    cc: tuple[str, ...] = ()
    bcc: tuple[str, ...] = ()
    subject: str = ""
    text: str = ""
    """Its text, without HTML."""


class Sql(PreviewPart):
    """A statement with the database's plan for it."""

    kind: Literal["sql"] = "sql"
    statement: str
    plan: str = ""
    """The text of a plain `EXPLAIN`."""


class Image(PreviewPart):
    """A picture: PNG, JPEG, GIF or WebP."""

    kind: Literal["image"] = "image"
    data: Base64
    """The bytes. In JSON as base64."""
    text: str = ""
    """A description for people who do not see the picture."""


class File(PreviewPart):
    """A file that the call would write or send, without its content."""

    kind: Literal["file"] = "file"
    path: str
    size: int
    """Its size in bytes."""
    sha256: str
    """The SHA-256 of its content, in hex."""


AnyPart: TypeAlias = Annotated[
    Text | Markdown | Code | Diff | Table | Email | Sql | Image | File, Field(discriminator="kind")
]
PreviewFault = Literal["", "failed", "slow", "too_large", "invalid"]
"""Why a call has no preview. `invalid`: the hook returned something else, or lacks a part that the tool binds."""


class PreviewReference(FrozenModel):
    """The preview of a question: its masked parts in the store, and hashes."""

    parts: Content | None = None
    """The parts as JSON. `None` without a preview."""
    sha256: str = ""
    """The SHA-256 of the parts as shown."""
    bound: str = ""
    """The SHA-256 of the parts that the tool binds, before masking."""
    fault: PreviewFault = ""
    """Why there is none, or ""."""
