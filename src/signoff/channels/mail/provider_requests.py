"""Takes mail that providers bring by HTTP: verifies who brings it, and extracts the mail.

Every shape ends in the bare mail, since only that can be checked for its sender; of what a provider read out of it
nothing is taken. Postmark has to be set to include raw content, and a route of Mailgun to end in `mime`.
"""

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from signoff.channels.channel_errors import Forged, Malformed
from signoff.channels.envelopes import InboundRequest
from signoff.channels.json_body import read_object
from signoff.channels.mail.delivery_formats import form_fields, media_type, signed_fields
from signoff.channels.mail.options import MailWebhookOptions
from signoff.channels.mail.raw_mail import ArrivedMail
from signoff.channels.mail.sns import Fetch, SnsTopic, fetch_url
from signoff.channels.signature_check import check_same, check_time, hmac_hex
from signoff.channels.standard_webhooks import read_secret, verify_id

MAILGUN_SECONDS: Final = 12 * 3_600
"""For how long Mailgun tries again what it signed, and a little more."""
_SIGNED: Final = ("timestamp", "token", "signature")


class MailFormat(ABC):
    """One form in which a provider brings mail."""

    @abstractmethod
    def verify(self, raw: InboundRequest, now: datetime) -> None:
        """Raises `Forged` and nothing else."""

    @abstractmethod
    def mail(self, raw: InboundRequest) -> ArrivedMail | None:
        """Extracts the mail of a verified request; None where there is none. Raises `Malformed`."""


def mail_shape(options: MailWebhookOptions, fetch: Fetch = fetch_url) -> MailFormat:
    """Returns the form that the options name. Raises `ConfigError`."""
    secrets = tuple(each for each in (options.secret, options.previous_secret) if each)
    makers: Mapping[str, Callable[[], MailFormat]] = {
        "raw": lambda: RawFormat(secrets),
        "postmark": lambda: PostmarkFormat(options.user, secrets),
        "mailgun": lambda: MailgunFormat(secrets),
        "ses": lambda: SesFormat(SnsTopic(options.topic, fetch)),
    }
    return makers[options.shape]()


class RawFormat(MailFormat):
    """Takes the bare mail as `message/rfc822`, signed as Standard Webhooks."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._secrets = [read_secret(each) for each in secrets]

    def verify(self, raw: InboundRequest, now: datetime) -> None:
        """See `MailFormat`."""
        verify_id(self._secrets, raw.headers, raw.body, now)

    def mail(self, raw: InboundRequest) -> ArrivedMail | None:
        """See `MailFormat`."""
        if media_type(raw) != "message/rfc822":
            raise Malformed("the content type is not message/rfc822")
        return ArrivedMail(raw.body)


class PostmarkFormat(MailFormat):
    """Takes Postmark's JSON, which is not signed: the address that Postmark is given holds a user and a password."""

    def __init__(self, user: str, secrets: tuple[str, ...]) -> None:
        self._wanted = [b"Basic " + base64.b64encode(f"{user}:{each}".encode()) for each in secrets]

    def verify(self, raw: InboundRequest, now: datetime) -> None:
        """See `MailFormat`."""
        check_same(raw.headers.get("authorization", ""), *self._wanted)

    def mail(self, raw: InboundRequest) -> ArrivedMail | None:
        """See `MailFormat`."""
        body = _json_object(raw)
        whole = body.get("RawEmail")
        if not isinstance(whole, str) or not whole:
            raise Malformed("there is no `RawEmail`: have Postmark include raw email content")
        recipient = body.get("OriginalRecipient")
        return ArrivedMail(_bytes(whole), (recipient,) if isinstance(recipient, str) else ())


class MailgunFormat(MailFormat):
    """Takes mail of a Mailgun route. Its signature does not cover the mail, which therefore has to prove itself."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._keys = [each.encode() for each in secrets]

    def verify(self, raw: InboundRequest, now: datetime) -> None:
        """See `MailFormat`. Of the form only what is signed is looked for: to read all of it takes seconds."""
        try:
            fields = signed_fields(raw, _SIGNED)
        except Malformed:
            raise Forged("there is no signature that can be read") from None
        moment, token, given = (fields.get(name, b"") for name in _SIGNED)
        if not 1 <= len(token) <= 200:
            raise Forged("there is no token that could be signed")
        check_time(moment, now, MAILGUN_SECONDS)
        check_same(given, *(hmac_hex(key, moment + token) for key in self._keys))

    def mail(self, raw: InboundRequest) -> ArrivedMail | None:
        """See `MailFormat`."""
        fields = form_fields(raw)
        if not fields.get("body-mime"):
            raise Malformed("there is no `body-mime`: have the route forward to an address that ends in `mime`")
        return ArrivedMail(fields["body-mime"], (fields.get("recipient", b"").decode("utf-8", "replace"),))


class SesFormat(MailFormat):
    """Takes what SES receives, by an SNS topic with the mail in it: SES vouches for the sender, SNS signs all of it."""

    def __init__(self, topic: SnsTopic) -> None:
        self._topic = topic

    def verify(self, raw: InboundRequest, now: datetime) -> None:
        """See `MailFormat`."""
        self._topic.verify(raw.body, now)

    def mail(self, raw: InboundRequest) -> ArrivedMail | None:
        """See `MailFormat`."""
        return self._topic.mail(raw.body)


def _json_object(raw: InboundRequest) -> dict[str, Any]:
    if media_type(raw) != "application/json":
        raise Malformed("the content type is not application/json")
    return read_object(raw.body)


def _bytes(whole: str) -> bytes:
    return whole.encode("utf-8", "surrogatepass")
