import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any, ClassVar

from mail_kit import Delivered, Relay, judged, replied, written

from signoff.channels.envelopes import InboundRequest
from signoff.channels.standard_webhooks import read_secret, signed_headers
from signoff.contracts.decision import Verdict
from signoff.testing.vendor import Vendor, VendorCard

SECRET = "whsec_" + "c2lnbmVkIGJ5IG91ciBtYWlsIHNlcnZlciwgMzIgYnl0ZXM="
HOW = {"approved": "Approve", "denied": "deny"}


class Post(Vendor):
    kind: ClassVar[str] = "email"
    identities = ("ana@people.example", "bo@people.example", "cy@people.example", "eve@else.example")

    def __init__(self, server: Relay) -> None:
        self._server = server
        self._sent = 0
        self.clock = lambda: datetime.now(UTC)

    @property
    def trouble(self) -> Any:  # type: ignore[override]
        return "down" if self._server.trouble == "down" else "busy" if self._server.trouble else ""

    @trouble.setter
    def trouble(self, trouble: str) -> None:
        self._server.trouble = "421 4.7.0 too much mail, try later" if trouble == "busy" else trouble

    @property
    def options(self) -> Mapping[str, Any]:
        return {
            "smtp": {"host": "127.0.0.1", "port": self._server.port, "tls": "none"},
            "sender": "Signoff <signoff@signoff.example>",
            "reply_to": "approvals@signoff.example",
            "authserv_id": "mx.signoff.example",
            "inbound": {"webhook": {"secret": "env:MAIL_SECRET"}},
        }

    @property
    def environment(self) -> Mapping[str, str]:
        return {"MAIL_SECRET": SECRET}

    def taken(self) -> Sequence[Delivered]:
        return self._server.taken

    def cards(self) -> Sequence[VendorCard]:
        cards = [
            each for each in self._server.taken if not re.search(r"\.(closed|answer|question)", each.mail["Message-ID"])
        ]
        return [VendorCard(each.to[0], _token(each), each.plain) for each in cards]

    def reads(self, identity: str) -> Sequence[str]:
        return [each.plain for each in self._server.taken if identity in each.to]

    def press(self, card: VendorCard, identity: str, verdict: Verdict, reason: str = "") -> InboundRequest:
        return self._brought(judged(self._reply(card, identity, f"{HOW[verdict]}\n{reason}")))

    def reply(self, card: VendorCard, identity: str, words: str) -> InboundRequest | None:
        return self._brought(judged(self._reply(card, identity, words)))

    def reply_with(self, card: VendorCard, identity: str, words: str, headers: Mapping[str, str]) -> InboundRequest:
        mail = self._reply(card, identity, words)
        for name, value in headers.items():
            mail[name] = value
        return self._brought(judged(mail))

    def write(self, identity: str, words: str) -> InboundRequest:
        return self._brought(judged(self._now(written(identity, "approvals@signoff.example", words))))

    def reply_to_latest(self, identity: str, words: str) -> InboundRequest:
        newest = next(each for each in reversed(self._server.taken) if identity in each.to)
        back = str(newest.mail["Reply-To"] or "approvals@signoff.example")
        return self._brought(judged(self._now(replied(newest, identity, words, to=back))))

    def sign(self, body: bytes) -> InboundRequest:
        return self._brought(body)

    def forgeries(self, raw: InboundRequest) -> Sequence[InboundRequest]:
        received, judgement, mail = raw.body.split(b"\r\n", 2)
        received, judgement = received + b"\r\n", judgement + b"\r\n"
        other = b"Authentication-Results: mx.else.example; dmarc=pass header.from=people.example\r\n"
        untrue = (
            received + mail,
            received + judgement.replace(b"pass", b"fail") + mail,
            received + other + mail,
            received + judgement.replace(b"people.example", b"else.example") + mail,
            received + judgement + b"From: eve@else.example\r\n" + mail,
            received + judgement + mail.replace(b"From: Somebody <", b"From: bo@people.example <eve@else.example>, <"),
            judgement + mail,
            received.replace(b"mx.signoff.example", b"mx.else.example") + judgement + mail,
            received + received.replace(b"mx.signoff.example", b"mx.else.example") + judgement + mail,
        )
        return (*super().forgeries(raw), *map(self._brought, untrue))

    def unknown(self) -> Sequence[InboundRequest]:
        card = self.cards()[-1]
        away = self._reply(card, card.to, "approve")
        away["Auto-Submitted"] = "auto-replied"
        slow = written("mailer-daemon@people.example", "approvals@signoff.example", "It takes longer than usual.")
        listed = self._reply(card, card.to, "approve")
        listed["List-Id"] = "<list.people.example>"
        return [self._brought(judged(each)) for each in (away, slow, listed)]

    def _now(self, mail: EmailMessage) -> EmailMessage:
        mail.replace_header("Date", format_datetime(self.now_said))
        return mail

    def _reply(self, card: VendorCard, identity: str, words: str) -> EmailMessage:
        return replied(self._card(card), identity, words)

    def _card(self, card: VendorCard) -> Delivered:
        return next(each for each in self._server.taken if (each.to[0], each.plain) == (card.to, card.text))

    def _brought(self, mail: bytes) -> InboundRequest:
        self._sent += 1
        headers = signed_headers([read_secret(SECRET)], f"mail_{self._sent}", self.clock(), mail)
        return InboundRequest(mail, headers={**headers, "content-type": "message/rfc822"}, at=self.clock())


def _token(mail: Delivered) -> str:
    return str(mail.mail["Reply-To"]).partition("+")[2].partition(".")[0]
