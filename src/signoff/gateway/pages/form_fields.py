"""Reads a sent form: text fields, up to a fixed number."""

import asyncio
from typing import Final, TypeAlias
from urllib.parse import parse_qsl

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request

from signoff.contracts.errors import BadRequest
from signoff.contracts.limits import FORM_FIELDS

Fields: TypeAlias = ImmutableMultiDict[str, str]
_FORM: Final = "application/x-www-form-urlencoded"
_SMALL_BYTES: Final = 16 * 1024
"""Larger forms are parsed in a thread, because parsing them would block other requests."""


async def read_form(request: Request) -> Fields:
    """In order. Raises `BadRequest` for other bodies and for too many fields."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()
    if not body:
        return ImmutableMultiDict()
    # All forms of the pages have this type. Python would parse multipart bodies byte by byte, for any sender.
    if kind != _FORM:
        raise BadRequest(f"send a form as {_FORM}", status=415, code="content_type")
    if len(body) <= _SMALL_BYTES:
        return _parse(body)
    return await asyncio.to_thread(_parse, body)


def _parse(body: bytes) -> Fields:
    try:
        text = body.decode("ascii")
        return ImmutableMultiDict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FORM_FIELDS))
    # Includes too many fields, which are counted before they are parsed.
    except ValueError:
        raise BadRequest(f"this is not a form, or it has more than {FORM_FIELDS} fields") from None
