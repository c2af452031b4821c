"""Takes email that providers post by HTTP.

Every shape yields the raw email, since only that proves its sender; the provider's own parse is ignored. Postmark must
include raw content, and a route of Mailgun must end in `mime`.
"""

import base64
import binascii
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import parse_qs, unquote_to_bytes

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import FormParser, parse_options_header

from signoff.channels.channel_errors import Forged, Malformed
from signoff.channels.envelopes import InboundRequest
from signoff.channels.json_body import read_object
from signoff.channels.mail.options import MailWebhookOptions
from signoff.channels.mail.raw_mail import ArrivedMail
from signoff.channels.mail.sns import Fetch, SnsTopic, fetch_url
from signoff.channels.signature_check import check_same, check_time, hmac_hex
from signoff.channels.standard_webhooks import read_secret, verify_id

_MAX_FIELDS: Final = 100
_SIGNED_BYTES: Final = 2_048
"""The most bytes of a signed field, with the header of its part."""
_BOUNDARY_BYTES: Final = 70
"""The limit of RFC 2046, 5.1.1."""
_FORM: Final = "application/x-www-form-urlencoded"
_MULTIPART: Final = "multipart/form-data"
_NAME: Final = re.compile(rb'content-disposition:[ \t]*form-data;[ \t]*name="([a-z]{1,20})"', re.IGNORECASE)

MAILGUN_SECONDS: Final = 12 * 3_600
"""Slightly longer than Mailgun repeats a signed request."""
_SIGNED: Final = ("timestamp", "token", "signature")


class MailFormat(ABC):
    """One provider's format of posted email."""

    @abstractmethod
    def verify(self, raw: InboundRequest, now: datetime) -> None:
        """Raise `Forged` unless the provider sent the request. Never raises anything else."""

    @abstractmethod
    def mail(self, raw: InboundRequest) -> ArrivedMail | None:
        """Extract the email of a verified request. None if it has none. Raises `Malformed`."""


def mail_shape(options: MailWebhookOptions, fetch: Fetch = fetch_url) -> MailFormat:
    """Raises `ConfigError`."""
    secrets = tuple(each for each in (options.secret, options.previous_secret) if each)
    makers: Mapping[str, Callable[[], MailFormat]] = {
        "raw": lambda: RawFormat(secrets),
        "postmark": lambda: PostmarkFormat(options.user, secrets),
        "mailgun": lambda: MailgunFormat(secrets),
        "ses": lambda: SesFormat(SnsTopic(options.topic, fetch)),
    }
    return makers[options.shape]()


class RawFormat(MailFormat):
    """Takes the raw email as `message/rfc822`, signed as Standard Webhooks."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._secrets = [read_secret(each) for each in secrets]

    def verify(self, raw: InboundRequest, now: datetime) -> None:
        verify_id(self._secrets, raw.headers, raw.body, now)

    def mail(self, raw: InboundRequest) -> ArrivedMail | None:
        if _media_type(raw) != "message/rfc822":
            raise Malformed("the content type is not message/rfc822")
        return ArrivedMail(raw.body)


class PostmarkFormat(MailFormat):
    """Takes Postmark's JSON, which is not signed: the address configured in Postmark has a user and a password."""

    def __init__(self, user: str, secrets: tuple[str, ...]) -> None:
        self._wanted = [b"Basic " + base64.b64encode(f"{user}:{each}".encode()) for each in secrets]

    def verify(self, raw: InboundRequest, now: datetime) -> None:
        check_same(raw.headers.get("authorization", ""), *self._wanted)

    def mail(self, raw: InboundRequest) -> ArrivedMail | None:
        body = _json_object(raw)
        whole = body.get("RawEmail")
        if not isinstance(whole, str) or not whole:
            raise Malformed("there is no `RawEmail`: have Postmark include raw email content")
        recipient = body.get("OriginalRecipient")
        return ArrivedMail(_bytes(whole), (recipient,) if isinstance(recipient, str) else ())


class MailgunFormat(MailFormat):
    """Takes email of a Mailgun route. The signature does not cover the email, which must prove its own sender."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._keys = [each.encode() for each in secrets]

    def verify(self, raw: InboundRequest, now: datetime) -> None:
        """Parses only the signed fields: parsing the whole form takes seconds."""
        try:
            fields = _signed_fields(raw, _SIGNED)
        except Malformed:
            raise Forged("there is no signature that can be read") from None
        moment, token, given = (fields.get(name, b"") for name in _SIGNED)
        if not 1 <= len(token) <= 200:
            raise Forged("there is no token that could be signed")
        check_time(moment, now, MAILGUN_SECONDS)
        check_same(given, *(hmac_hex(key, moment + token) for key in self._keys))

    def mail(self, raw: InboundRequest) -> ArrivedMail | None:
        fields = _form_fields(raw)
        if not fields.get("body-mime"):
            raise Malformed("there is no `body-mime`: have the route forward to an address that ends in `mime`")
        return ArrivedMail(fields["body-mime"], (fields.get("recipient", b"").decode("utf-8", "replace"),))


class SesFormat(MailFormat):
    """Takes email that SES receives, in the messages of an SNS topic. SES checks the sender, SNS signs all of it."""

    def __init__(self, topic: SnsTopic) -> None:
        self._topic = topic

    def verify(self, raw: InboundRequest, now: datetime) -> None:
        self._topic.verify(raw.body, now)

    def mail(self, raw: InboundRequest) -> ArrivedMail | None:
        return self._topic.mail(raw.body)


def _json_object(raw: InboundRequest) -> dict[str, Any]:
    if _media_type(raw) != "application/json":
        raise Malformed("the content type is not application/json")
    return read_object(raw.body)


def _bytes(whole: str) -> bytes:
    return whole.encode("utf-8", "surrogatepass")


def _media_type(raw: InboundRequest) -> str:
    return raw.headers.get("content-type", "").partition(";")[0].strip().lower()


def _signed_fields(raw: InboundRequest, names: Collection[str]) -> dict[str, bytes]:
    """Return the short fields `names` of a form, the first of several with one name.

    Raises `Malformed`. The sender has proved nothing yet: decode nothing long, and parse nothing byte by byte.
    """
    kind = _media_type(raw)
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


def _form_fields(raw: InboundRequest) -> dict[str, bytes]:
    """Return the fields of a form, the first of several with one name. Raises `Malformed`."""
    kind = _media_type(raw)
    if kind == _FORM:
        try:
            # Latin-1 preserves all bytes: the email is bytes, not text.
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
    # The pieces before the first boundary and after the last one are not fields.
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
        # Keep it in memory: above 1 MiB, python-multipart would write the email to a temporary file.
        parser = FormParser(
            _MULTIPART, lambda field: keep(field.field_name, field.value), keep_file, boundary=boundary,
            config={"MAX_MEMORY_FILE_SIZE": len(raw.body) + 1},
        )  # fmt: skip
        parser.write(raw.body)
        parser.finalize()
    except (FormParserError, ValueError, binascii.Error):
        raise Malformed("the form cannot be read") from None
    return found
