"""Parses the forms in which mail is brought: first what is signed, without reading the rest, then all of it."""

import binascii
import re
from collections.abc import Collection, Iterator
from typing import Any, Final
from urllib.parse import parse_qs, unquote_to_bytes

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import FormParser, parse_options_header

from signoff.channels.channel_errors import Malformed
from signoff.channels.envelopes import InboundRequest

_MAX_FIELDS: Final = 100
_SIGNED_BYTES: Final = 2_048
"""A longer field, with what stands before it in its part, is not one that is signed."""
_BOUNDARY_BYTES: Final = 70
"""RFC 2046, 5.1.1."""
_FORM: Final = "application/x-www-form-urlencoded"
_MULTIPART: Final = "multipart/form-data"
_NAME: Final = re.compile(rb'content-disposition:[ \t]*form-data;[ \t]*name="([a-z]{1,20})"', re.IGNORECASE)


def media_type(raw: InboundRequest) -> str:
    """Returns the content type, without its parameters."""
    return raw.headers.get("content-type", "").partition(";")[0].strip().lower()


def signed_fields(raw: InboundRequest, names: Collection[str]) -> dict[str, bytes]:
    """Returns those of the short fields `names` that a form has, of several with one name the first.

    Raises `Malformed`.

    Whoever sends it has proved nothing yet: nothing long is decoded, and nothing is parsed byte by byte.
    """
    kind = media_type(raw)
    if kind == _FORM:
        found = _short_pairs(raw.body)
    elif kind == _MULTIPART:
        found = _short_parts(raw.body, _boundary(raw))
    else:
        raise Malformed("the content type is not that of a form")
    fields: dict[str, bytes] = {}
    for name, value in found:
        if name in names:
            fields.setdefault(name, value)
    return fields


def form_fields(raw: InboundRequest) -> dict[str, bytes]:
    """Returns the fields of a form, of several with one name the first. Raises `Malformed`."""
    kind = media_type(raw)
    if kind == _FORM:
        try:
            # Latin-1 keeps bytes as they are: the mail is bytes, not text.
            found = parse_qs(
                raw.body.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_FIELDS, encoding="latin-1"
            )
        except ValueError:
            raise Malformed("the form cannot be read") from None
        return {name: values[0].encode("latin-1") for name, values in found.items()}
    if kind == _MULTIPART:
        return _parts(raw)
    raise Malformed("the content type is not that of a form")


def _short_pairs(body: bytes) -> Iterator[tuple[str, bytes]]:
    for pair in _pieces(body, b"&"):
        if len(pair) <= _SIGNED_BYTES:
            name, _, value = pair.partition(b"=")
            yield name.decode("latin-1"), unquote_to_bytes(value.replace(b"+", b" "))


def _short_parts(body: bytes, boundary: bytes) -> Iterator[tuple[str, bytes]]:
    for part in _pieces(body, b"--" + boundary):
        head, blank, value = part.partition(b"\r\n\r\n") if len(part) <= _SIGNED_BYTES else (b"", b"", b"")
        named = _NAME.search(head)
        if blank and named is not None:
            yield named[1].decode(), value.removesuffix(b"\r\n")


def _pieces(body: bytes, between: bytes) -> list[bytes]:
    pieces = body.split(between, _MAX_FIELDS + 2)
    # What stands before the first boundary and after the last one is no field.
    if len(pieces) > _MAX_FIELDS + 2:
        raise Malformed("the form has too many fields")
    return pieces


def _boundary(raw: InboundRequest) -> bytes:
    _, options = parse_options_header(raw.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= _BOUNDARY_BYTES:
        raise Malformed("the form has no boundary")
    return boundary


def _parts(raw: InboundRequest) -> dict[str, bytes]:
    boundary = _boundary(raw)
    found: dict[str, bytes] = {}
    parts = 0

    def keep(name: bytes | None, value: bytes | None) -> None:
        nonlocal parts
        parts += 1
        if parts > _MAX_FIELDS:
            raise Malformed("the form has too many fields")
        found.setdefault((name or b"").decode("utf-8", "replace"), value or b"")

    def keep_file(file: Any) -> None:
        file.file_object.seek(0)
        keep(file.field_name, file.file_object.read())
        file.close()

    try:
        # All of it in memory: above 1 MiB python-multipart would write the mail to a temporary file.
        parser = FormParser(
            _MULTIPART, lambda field: keep(field.field_name, field.value), keep_file, boundary=boundary,
            config={"MAX_MEMORY_FILE_SIZE": len(raw.body) + 1},
        )  # fmt: skip
        parser.write(raw.body)
        parser.finalize()
    except (FormParserError, ValueError, binascii.Error):
        raise Malformed("the form cannot be read") from None
    return found
