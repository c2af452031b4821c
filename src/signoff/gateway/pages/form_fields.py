"""Reads the form that a page sent: fields of text, so many and no more."""

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
"""What is parsed within a millisecond is parsed at once; more in a thread, where it holds up nobody's request."""


async def read_form(request: Request) -> Fields:
    """Returns the fields of a form of ours, in their order. Raises `BadRequest` for anything else, and for too many."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()
    if not body:
        return ImmutableMultiDict()
    # Ours are all of this type. Files and parts would be parsed in Python, byte by byte, for whoever sends them.
    if kind != _FORM:
        raise BadRequest(f"send a form as {_FORM}", status=415, code="content_type")
    if len(body) <= _SMALL_BYTES:
        return _parse(body)
    return await asyncio.to_thread(_parse, body)


def _parse(body: bytes) -> Fields:
    try:
        text = body.decode("ascii")
        return ImmutableMultiDict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FORM_FIELDS))
    # Also too many fields, which are counted before any is read.
    except ValueError:
        raise BadRequest(f"this is no form, or one of more than {FORM_FIELDS} fields") from None
