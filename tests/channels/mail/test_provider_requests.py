import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID
from mail_kit import replied, signed
from mail_rig import BO, NOW, TOKEN, MailRig, mail_rig
from tables import table

from signoff.channels.channel_errors import Forged, Malformed
from signoff.channels.envelopes import InboundBatch, InboundRequest
from signoff.channels.mail import provider_requests
from signoff.channels.mail.options import MailWebhookOptions
from signoff.channels.mail.provider_requests import MailFormat, mail_shape
from signoff.channels.mail.raw_mail import ArrivedMail
from signoff.channels.standard_webhooks import read_secret, signed_headers

SECRET = "whsec_" + base64.b64encode(b"signed by our own mail server 32").decode()
FORM = "application/x-www-form-urlencoded"
TOPIC = "arn:aws:sns:eu-west-1:123456789012:mail"
CERTIFICATE = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-1.pem"


async def reply(rig: MailRig, words: str = "approve") -> bytes:
    return signed(replied(await rig.card(), BO, words))


def summary(received: InboundBatch) -> tuple[str, str, str]:
    [action] = received.actions
    return action.identity, action.token, action.text


def raw_request(mail: bytes) -> InboundRequest:
    headers = signed_headers([read_secret(SECRET)], "mail_1", NOW, mail)
    return InboundRequest(mail, headers={**headers, "content-type": "message/rfc822"}, at=NOW)


def postmark_request(mail: bytes, password: str = "secret", **changes: Any) -> InboundRequest:
    body = {"OriginalRecipient": "x@inbound.example", "RawEmail": mail.decode(), "From": BO, **changes}
    login = base64.b64encode(f"signoff:{password}".encode()).decode()
    headers = {"authorization": f"Basic {login}", "content-type": "application/json; charset=utf-8"}
    return InboundRequest(json.dumps(body).encode(), headers=headers, at=NOW)


def mailgun_fields(mail: bytes, key: str = "secret", at: int = 0) -> dict[str, bytes]:
    moment = str(int(NOW.timestamp()) + at).encode()
    signature = hmac.new(key.encode(), moment + b"t" * 50, hashlib.sha256).hexdigest().encode()
    return {
        "recipient": b"approvals@signoff.example", "body-mime": mail, "timestamp": moment, "token": b"t" * 50,
        "signature": signature,
    }  # fmt: skip


def mailgun_request(fields: dict[str, bytes]) -> InboundRequest:
    body = "&".join(f"{quote(name)}={quote(value)}" for name, value in fields.items())
    return InboundRequest(body.encode(), headers={"content-type": FORM}, at=NOW)


def multipart_request(fields: dict[str, bytes], file: str = "") -> InboundRequest:
    body = b"".join(
        b'--xyz\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
        % (name.encode(), b'; filename="mail"' if name == file else b"", value)
        for name, value in fields.items()
    )
    return InboundRequest(body + b"--xyz--\r\n", headers={"content-type": "multipart/form-data; boundary=xyz"}, at=NOW)


async def test_each_shape_delivers_the_original_email() -> None:
    for shape, brought in (
        ("raw", raw_request),
        ("postmark", postmark_request),
        ("mailgun", lambda mail: mailgun_request(mailgun_fields(mail))),
        ("mailgun", lambda mail: multipart_request(mailgun_fields(mail))),
        ("mailgun", lambda mail: multipart_request(mailgun_fields(mail), file="body-mime")),
    ):
        secret = SECRET if shape == "raw" else "secret"
        async with mail_rig(inbound={"webhook": {"shape": shape, "secret": secret}}) as rig:
            mail = await reply(rig)
            bring: Callable[[bytes], InboundRequest] = brought
            assert summary(await rig.receive(bring(mail))) == (BO, TOKEN, "approve"), shape
            altered = mail.replace(b"approve\r\n", b"APPROVE\r\n", 1)
            assert altered != mail
            assert summary(await rig.receive(bring(altered)))[0] == f"{BO} (not proved)"


async def test_fields_extracted_by_the_provider_are_ignored() -> None:
    async with mail_rig(inbound={"webhook": {"shape": "mailgun", "secret": "secret"}}) as rig:
        fields = mailgun_fields(await reply(rig, "hm")) | {
            "stripped-text": b"approve",
            "sender": b"ana@people.example",
        }
        assert summary(await rig.receive(mailgun_request(fields))) == (BO, TOKEN, "hm")


def shape_of(name: str, **given: Any) -> MailFormat:
    fields = {"shape": name, "secret": SECRET if name == "raw" else "secret", **given}
    return mail_shape(MailWebhookOptions(**fields))


FORGED: list[tuple[str, InboundRequest]] = [
    ("raw", InboundRequest(b"x", headers={"content-type": "message/rfc822"})),
    ("raw", InboundRequest(b"y", headers=raw_request(b"x").headers)),
    ("postmark", postmark_request(b"x", password="guess")),
    ("postmark", InboundRequest(b"{}", headers={"authorization": "Basic \udcff", "content-type": "application/json"})),
    ("postmark", InboundRequest(b"{}", headers={"content-type": "application/json"})),
    ("mailgun", mailgun_request(mailgun_fields(b"x", key="guess"))),
    ("mailgun", mailgun_request(mailgun_fields(b"x", at=-13 * 3_600))),
    ("mailgun", mailgun_request(mailgun_fields(b"x", at=13 * 3_600))),
    ("mailgun", mailgun_request(mailgun_fields(b"x") | {"token": b""})),
    ("mailgun", mailgun_request(mailgun_fields(b"x") | {"timestamp": b"\xd9\xa3"})),
    ("mailgun", mailgun_request({})),
    ("mailgun", InboundRequest(b"{}", headers={"content-type": "application/json"})),
    ("mailgun", InboundRequest(b"--x", headers={"content-type": "multipart/form-data"})),
    ("mailgun", InboundRequest(b"nothing", headers={"content-type": "multipart/form-data; boundary=xyz"})),
    ("mailgun", InboundRequest(b"a=b&" * 1_000, headers={"content-type": FORM})),
]


@table(("shape", "raw"), *FORGED)
def test_request_not_from_the_provider_is_forged(shape: str, raw: InboundRequest) -> None:
    with pytest.raises(Forged):
        shape_of(shape).verify(raw, NOW)


@table(
    ("shape", "raw"),
    ("raw", InboundRequest(b"x", headers={"content-type": "text/plain"})),
    ("postmark", postmark_request(b"x", RawEmail="")),
    ("postmark", postmark_request(b"x", RawEmail=None)),
    ("postmark", InboundRequest(b"[]", headers={"content-type": "application/json"})),
    ("postmark", InboundRequest(b"[" * 100_000, headers={"content-type": "application/json"})),
    ("postmark", InboundRequest(b"{}", headers={"content-type": "text/html"})),
    ("mailgun", mailgun_request(mailgun_fields(b""))),
)
def test_request_without_an_email_is_malformed(shape: str, raw: InboundRequest) -> None:
    with pytest.raises(Malformed):
        shape_of(shape).mail(raw)


def test_two_secrets_are_valid_during_a_rotation() -> None:
    shape = shape_of("postmark", previous_secret="before")
    for password in ("secret", "before"):
        shape.verify(postmark_request(b"x", password=password), NOW)
    with pytest.raises(Forged):
        shape.verify(postmark_request(b"x", password=""), NOW)


class Amazon:
    def __init__(self, *, elliptic: bool = False, days: int = 1) -> None:
        self._rsa = rsa.generate_private_key(65_537, 2_048)
        self.key: Any = ec.generate_private_key(ec.SECP256R1()) if elliptic else self._rsa
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
        made = x509.CertificateBuilder(name, name, self.key.public_key(), x509.random_serial_number())
        made = made.not_valid_before(NOW - timedelta(days=2)).not_valid_after(NOW + timedelta(days=days))
        self.certificate = made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        self.fetched: list[str] = []

    def fetch(self, url: str) -> bytes:
        self.fetched.append(url)
        if url.endswith("-a.pem"):
            raise OSError("gone")
        return b"no certificate" if url.endswith("-b.pem") else self.certificate

    def notice(self, message: Any, **changes: Any) -> InboundRequest:
        body = {
            "Type": "Notification", "MessageId": "1", "TopicArn": TOPIC, "Message": json.dumps(message),
            "Timestamp": "2026-11-22T14:00:00.000Z", "SignatureVersion": "2", "SigningCertURL": CERTIFICATE, **changes,
        }  # fmt: skip
        subscribing = body["Type"] != "Notification"
        names = ["Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]
        unsigned = ("Subject",) if subscribing else ("SubscribeURL", "Token")
        text = "".join(f"{name}\n{body[name]}\n" for name in names if name in body and name not in unsigned)
        hashed: hashes.HashAlgorithm = hashes.SHA1() if body["SignatureVersion"] == "1" else hashes.SHA256()
        signature = self._rsa.sign(text.encode(), padding.PKCS1v15(), hashed)
        body["Signature"] = base64.b64encode(signature).decode()
        return InboundRequest(json.dumps(body).encode(), headers={"content-type": "text/plain; charset=UTF-8"}, at=NOW)

    @property
    def shape(self) -> MailFormat:
        return mail_shape(MailWebhookOptions(shape="ses", topic=TOPIC), self.fetch)


def received(mail: bytes, *, dmarc: str = "PASS", encoding: str = "BASE64") -> dict[str, Any]:
    content = base64.b64encode(mail).decode() if encoding == "BASE64" else mail.decode()
    verdicts = {"dmarcVerdict": {"status": dmarc}, "spfVerdict": {"status": "PASS"}}
    receipt = {**verdicts, "recipients": ["approvals@signoff.example"], "action": {"type": "SNS", "encoding": encoding}}
    return {"notificationType": "Received", "content": content, "mail": {"source": BO}, "receipt": receipt}


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("encoding", ["BASE64", "UTF8"])
def test_ses_notice_contains_the_email_and_its_verdict(version: str, encoding: str) -> None:
    amazon = Amazon()
    shape = amazon.shape
    for subject in ({}, {"Subject": "Amazon SES Email Receipt Notification"}):
        raw = amazon.notice(received(b"From: a\r\n\r\nhi", encoding=encoding), SignatureVersion=version, **subject)
        shape.verify(raw, NOW)
        arrived = shape.mail(raw)
        assert arrived is not None
        assert (arrived.raw, arrived.recipients) == (b"From: a\r\n\r\nhi", ("approvals@signoff.example",))
        assert arrived.verdict is not None
        assert vars(arrived.verdict) == {"dmarc": "PASS", "spf": "PASS", "envelope_from": BO}
    assert amazon.fetched == [CERTIFICATE]


async def test_ses_verdict_verifies_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    amazon = Amazon()
    monkeypatch.setattr("signoff.channels.mail.email.mail_shape", lambda options: mail_shape(options, amazon.fetch))
    async with mail_rig(inbound={"webhook": {"shape": "ses", "topic": TOPIC}}) as rig:
        card = await rig.card()
        mail = replied(card, BO, "approve")
        assert summary(await rig.receive(amazon.notice(received(mail.as_bytes())))) == (BO, TOKEN, "approve")
        for verdict in ("FAIL", "GRAY", "PROCESSING_FAILED", ""):
            batch = await rig.receive(amazon.notice(received(signed(mail), dmarc=verdict)))
            assert summary(batch)[0] == f"{BO} (not proved)", verdict


def test_topic_subscription_is_confirmed_at_amazon_only() -> None:
    amazon = Amazon()
    url = "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription"
    raw = amazon.notice("", Type="SubscriptionConfirmation", SubscribeURL=url, Token="t")
    amazon.shape.verify(raw, NOW)
    assert amazon.shape.mail(raw) is None
    assert url in amazon.fetched
    away = amazon.notice("", Type="SubscriptionConfirmation", SubscribeURL="https://else.example/", Token="t")
    amazon.shape.verify(away, NOW)
    with pytest.raises(Malformed):
        amazon.shape.mail(away)
    assert "https://else.example/" not in amazon.fetched


@pytest.mark.parametrize(
    "changes",
    [
        {"TopicArn": "arn:aws:sns:eu-west-1:999999999999:mail"},
        {"SigningCertURL": "https://sns.eu-west-1.amazonaws.com.else.example/SimpleNotificationService-1.pem"},
        {"SigningCertURL": "https://else.example/SimpleNotificationService-1.pem"},
        {"SigningCertURL": "https://sns.eu-west-1.amazonaws.com@else.example/SimpleNotificationService-1.pem"},
        {"SigningCertURL": "https://sns.eu-west-1.amazonaws.com:8443/SimpleNotificationService-1.pem"},
        {"SigningCertURL": "https://sns.eu-west-1.amazonaws.com:port/SimpleNotificationService-1.pem"},
        {"SigningCertURL": "https://x.s3.amazonaws.com/SimpleNotificationService-1.pem"},
        {"SigningCertURL": "http://sns.eu-west-1.amazonaws.com/SimpleNotificationService-1.pem"},
        {"SigningCertURL": "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-1.txt"},
        {"SigningCertURL": "https://sns.eu-west-1.amazonaws.com/other.pem"},
        {"SigningCertURL": "https://sns.eu-west-1.amazonaws.com/x/SimpleNotificationService-1.pem"},
        {"SigningCertURL": f"{CERTIFICATE}?.pem"},
        {"SigningCertURL": "https://sns.s3.amazonaws.com/SimpleNotificationService-1.pem"},
        {"SigningCertURL": "https://sns.s3-us-west-2.amazonaws.com/SimpleNotificationService-1.pem"},
        {"SigningCertURL": "https://sns.s3-external-1.amazonaws.com/SimpleNotificationService-1.pem"},
        {"SigningCertURL": "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-a.pem"},
        {"SigningCertURL": "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-b.pem"},
        {"SignatureVersion": "3"},
        {"Type": "Something"},
    ],
)
def test_notice_with_another_topic_or_certificate_address_is_forged(changes: dict[str, Any]) -> None:
    amazon = Amazon()
    with pytest.raises(Forged):
        amazon.shape.verify(amazon.notice(received(b"x"), **changes), NOW)
    assert all(
        url.startswith("https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-") for url in amazon.fetched
    )


@pytest.mark.parametrize("region", ["us-east-1", "us-gov-west-1", "ap-southeast-2"])
def test_every_region_has_its_certificates(region: str) -> None:
    for host in (f"sns.{region}.amazonaws.com", "sns.cn-north-1.amazonaws.com.cn"):
        amazon = Amazon()
        url = f"https://{host}/SimpleNotificationService-9c6465fa7f48f5cacd23014631ec1136.pem"
        amazon.shape.verify(amazon.notice(received(b"x"), SigningCertURL=url), NOW)
        assert amazon.fetched == [url]


def test_notice_without_an_sns_signature_is_forged() -> None:
    amazon, other = Amazon(), Amazon()
    raw = amazon.notice(received(b"x"))
    body = json.loads(raw.body)
    for changes in ({"Message": "{}"}, {"Signature": "x"}, {"Signature": 3}, {"Signature": "é"}, {"Subject": "more"}):
        with pytest.raises(Forged):
            amazon.shape.verify(InboundRequest(json.dumps(body | changes).encode()), NOW)
    for shape in (other.shape, Amazon(elliptic=True).shape):
        with pytest.raises(Forged):
            shape.verify(raw, NOW)
    late = Amazon(days=-1)
    with pytest.raises(Forged):
        late.shape.verify(late.notice(received(b"x")), NOW)
    for nonsense in (b"", b"[]", b"{}", b"[" * 100_000, b'{"Type": []}'):
        with pytest.raises(Forged):
            amazon.shape.verify(InboundRequest(nonsense), NOW)


@table(
    "message",
    {"notificationType": "Received"},
    {"notificationType": "Received", "content": "x", "receipt": [], "mail": {}},
    {"notificationType": "Received", "content": "é", "receipt": {"action": {"encoding": "BASE64"}}, "mail": {}},
    [],
)
def test_notice_without_its_email_is_malformed(message: Any) -> None:
    amazon = Amazon()
    with pytest.raises(Malformed):
        amazon.shape.mail(amazon.notice(message))
    assert amazon.shape.mail(amazon.notice({"notificationType": "Bounce"})) is None
    assert amazon.shape.mail(amazon.notice({}, Type="UnsubscribeConfirmation")) is None


def test_form_with_any_bytes_is_read() -> None:
    mail = bytes(range(256)) * 4
    for raw in (mailgun_request(mailgun_fields(mail)), multipart_request(mailgun_fields(mail))):
        shape = shape_of("mailgun")
        shape.verify(raw, NOW)
        arrived = shape.mail(raw)
        assert arrived is not None
        assert arrived.raw == mail


def test_form_is_parsed_only_after_its_signature_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    parser = provider_requests.FormParser

    def counted(kind: str, on_field: Callable[[Any], None], *more: Any, **given: Any) -> Any:
        made.append(0)

        def field(read: Any) -> None:
            made[-1] += 1
            on_field(read)

        return parser(kind, field, *more, **given)

    monkeypatch.setattr(provider_requests, "FormParser", counted)
    shape = shape_of("mailgun")
    raw = multipart_request(mailgun_fields(b"From: a\r\n\r\nhi"))
    shape.verify(raw, NOW)
    assert made == []
    assert shape.mail(raw) == ArrivedMail(b"From: a\r\n\r\nhi", ("approvals@signoff.example",))
    assert made == [5]
    many = multipart_request(mailgun_fields(b"x") | {f"n{number}": b"" for number in range(1_000)})
    with pytest.raises(Forged):
        shape.verify(many, NOW)
    assert made == [5]
    part = b'--xyz\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n'
    same = InboundRequest(part * 1_000 + raw.body, headers=raw.headers)
    with pytest.raises(Forged):
        shape.verify(same, NOW)
    assert made == [5]
