"""Takes email from Amazon SES by an SNS topic: verifies the signature, confirms the subscription, extracts the email.

Any customer of Amazon can have SNS sign messages, so only our own topic counts.
"""

import base64
import logging
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from signoff.channels.channel_errors import Forged, Malformed
from signoff.channels.json_body import read_object
from signoff.channels.mail.authentication.authenticity import ProviderVerdict
from signoff.channels.mail.raw_mail import ArrivedMail

Fetch = Callable[[str], bytes]
"""Returns the contents of a web address of Amazon. Blocks. Raises `OSError`."""

NOTICE_BYTES: Final = 512 * 1024
"""Twice the limit of SNS for one message (256 KiB), as the JSON around it may escape it."""
_HOST: Final = re.compile(r"sns\.[a-z]{2}(?:-[a-z]{1,12}){1,3}-[0-9]\.amazonaws\.com(?:\.cn)?")
"""The host of a region, and nothing else: `sns.s3-us-west-2.amazonaws.com` may be an attacker's bucket."""
_CERTIFICATE: Final = re.compile(rf"https://{_HOST.pattern}/SimpleNotificationService-[0-9a-f]{{1,64}}\.pem")
_NOTIFICATION: Final = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
_SUBSCRIPTION: Final = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
_SIGNED: Final = {
    "Notification": _NOTIFICATION,
    "SubscriptionConfirmation": _SUBSCRIPTION,
    "UnsubscribeConfirmation": _SUBSCRIPTION,
}
# A topic signs with version 1 unless it is set to 2.
_HASHES: Final = {"1": hashes.SHA1, "2": hashes.SHA256}
_MAX_FETCHED: Final = 64 * 1024
_MAX_CERTIFICATES: Final = 8
_log = logging.getLogger(__name__)


def fetch_url(url: str) -> bytes:
    """Follows no redirects. Raises `OSError`."""
    try:
        answer = httpx2.get(url, timeout=5.0, follow_redirects=False)
    except httpx2.HTTPError as error:
        raise OSError(f"`{url}` cannot be read: {type(error).__name__}") from None
    if answer.status_code != 200 or len(answer.content) > _MAX_FETCHED:
        raise OSError(f"`{url}` cannot be read: {answer.status_code}")
    return answer.content


class SnsTopic:
    """Takes the notices of one topic, named by its ARN."""

    def __init__(self, arn: str, fetch: Fetch) -> None:
        self._arn = arn
        self._fetch = fetch
        self._certificates: dict[str, x509.Certificate] = {}

    def verify(self, body: bytes, now: datetime) -> None:
        """Raise `Forged` unless SNS signed the body for our topic."""
        try:
            notice = read_object(body)
            signed, hashed = _signed_form(notice)
            signature = base64.b64decode(_text(notice, "Signature"), validate=True)
        except (Malformed, ValueError):
            raise Forged("there is nothing that SNS could have signed") from None
        # Check the topic before the certificate: never fetch anything for another topic's notice.
        if notice.get("TopicArn") != self._arn:
            raise Forged("it is of another topic")
        certificate = self._certificate(_text(notice, "SigningCertURL"))
        key = certificate.public_key()
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
            raise Forged("the certificate is not valid now")
        if not isinstance(key, rsa.RSAPublicKey):
            raise Forged("the certificate's key is of another kind")
        try:
            key.verify(signature, signed, padding.PKCS1v15(), hashed)
        except InvalidSignature:
            raise Forged("the signature is not by SNS") from None

    def mail(self, body: bytes) -> ArrivedMail | None:
        """Extract the email of a verified notice, or confirm a subscription. Raises `Malformed`."""
        notice = read_object(body)
        kind = _text(notice, "Type")
        if kind == "SubscriptionConfirmation":
            self._subscribe(_text(notice, "SubscribeURL"))
        return (
            # JSON can have half of a surrogate pair. Strict encoding would raise an error other than `Malformed`.
            _mail(read_object(_text(notice, "Message").encode("utf-8", "surrogatepass")))
            if kind == "Notification"
            else None
        )

    def _subscribe(self, url: str) -> None:
        if not _of_amazon(url):
            raise Malformed("the address that confirms is not Amazon's")
        try:
            self._fetch(url)
        except OSError as error:
            raise Malformed(f"the subscription cannot be confirmed: {error}") from None
        _log.info("the subscription of %s is confirmed", self._arn)

    def _certificate(self, url: str) -> x509.Certificate:
        known = self._certificates.get(url)
        if known is not None:
            return known
        if not _CERTIFICATE.fullmatch(url):
            raise Forged("the certificate is not Amazon's")
        try:
            # The chain needs no check: the certificate was loaded by TLS from a host that only SNS has.
            certificate = x509.load_pem_x509_certificate(self._fetch(url))
        except (OSError, ValueError):
            raise Forged("the certificate cannot be read") from None
        if len(self._certificates) >= _MAX_CERTIFICATES:
            self._certificates.clear()
        self._certificates[url] = certificate
        return certificate


def _mail(message: dict[str, Any]) -> ArrivedMail | None:
    """Extract the email that SES received. None for other events. Raises `Malformed`."""
    if message.get("notificationType") != "Received":
        return None
    content, receipt, mail = message.get("content"), message.get("receipt"), message.get("mail")
    if not isinstance(content, str) or not isinstance(receipt, dict) or not isinstance(mail, dict):
        raise Malformed("there is no mail in the notice: have the receipt rule's SNS action carry it, in Base64")
    action = receipt.get("action")
    encoded = isinstance(action, dict) and str(action.get("encoding", "")).upper() == "BASE64"
    try:
        raw = base64.b64decode(content, validate=True) if encoded else content.encode("utf-8", "surrogatepass")
    except ValueError:
        raise Malformed("the mail in the notice is not Base64") from None
    recipients = receipt.get("recipients")
    named = tuple(each for each in recipients if isinstance(each, str)) if isinstance(recipients, list) else ()
    verdict = ProviderVerdict(_status(receipt, "dmarcVerdict"), _status(receipt, "spfVerdict"), _text(mail, "source"))
    return ArrivedMail(raw, named, verdict)


def _signed_form(notice: dict[str, Any]) -> tuple[bytes, hashes.HashAlgorithm]:
    names = _SIGNED.get(_text(notice, "Type"))
    hashed = _HASHES.get(_text(notice, "SignatureVersion"))
    if names is None or hashed is None:
        raise Malformed("neither the type nor the signature's version is known")
    # SNS signs the subject only of a notice that has one.
    lines = (f"{name}\n{_text(notice, name)}\n" for name in names if name != "Subject" or notice.get("Subject"))
    return "".join(lines).encode("utf-8", "surrogatepass"), hashed()


def _of_amazon(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    # Match the whole host: a user, a port or a dot after it would lead elsewhere.
    return parts.scheme == "https" and port is None and _HOST.fullmatch(parts.netloc) is not None


def _text(source: dict[str, Any], name: str) -> str:
    value = source.get(name)
    return value if isinstance(value, str) else ""


def _status(receipt: dict[str, Any], name: str) -> str:
    value = receipt.get(name)
    return _text(value, "status") if isinstance(value, dict) else ""
