from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from mail_kit import Delivered, Relay, published, relay

from signoff.approvals.card import render_card
from signoff.channels.base import ChannelContext
from signoff.channels.envelopes import ClosedCard, InboundBatch, InboundRequest, OutboundCard, SentCard
from signoff.channels.mail.email import EmailChannel
from signoff.channels.mail.raw_mail import FetchedMail
from signoff.contracts.call import REQUIRES_APPROVAL
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.testing import a_request

NOW = datetime(2026, 11, 22, 14, 0, tzinfo=UTC)
TOKEN = "abcdefghijklmnopqrstuvwxyz"
OTHER = "zyxwvutsrqponmlkjihgfedcba"
BO = "bo@people.example"
APPROVALS = "approvals@signoff.example"
LINK = "https://signoff.example/link/abc"
INBOUND = {"lmtp": {"port": 24}}


@dataclass(frozen=True)
class MailRig:
    channel: EmailChannel
    server: Relay

    async def card(self, token: str = TOKEN, **given: Any) -> Delivered:
        await self.channel.deliver(a_notice(token=token, **given), None)
        return self.server.taken[-1]

    async def hear(self, raw: bytes, *recipients: str) -> InboundBatch:
        return await self.receive(FetchedMail(raw, at=NOW, recipients=recipients))

    async def receive(self, raw: InboundRequest) -> InboundBatch:
        with ThreadPoolExecutor(1) as threads:
            return await self.channel.read(raw, threads)


@asynccontextmanager
async def mail_rig(**options: Any) -> AsyncIterator[MailRig]:
    async with relay() as server:
        given: dict[str, Any] = {
            "smtp": {"host": "127.0.0.1", "port": server.port, "tls": "none"},
            "sender": "Signoff <signoff@signoff.example>",
            "reply_to": APPROVALS,
            "inbound": INBOUND,
            **options,
        }
        context = ChannelContext("email", given, "https://signoff.example", lambda: NOW, b"k" * 32)
        yield MailRig(EmailChannel(context, published), server)


def a_notice(*, locale: str = "en", address: str = BO, kind: Any = "ask", more: int = 0, **given: Any) -> OutboundCard:
    token = given.pop("token", TOKEN)
    args = given.pop("args", {"to": "Example GmbH", "amount": 1200, "note": "the second half"})
    says = given.pop("agent_says", "It is due today.")
    card = render_card(effect="Pay {amount} EUR to {to}", title="", tool="pay", args=args, schema={}, agent_says=says)
    usual = {"rule": REQUIRES_APPROVAL, "actor": "clerk", "expires_at": NOW + timedelta(hours=4)}
    request = a_request(card=card, **usual | given)
    person = Person(id="bo", name="Bo", locale=locale, identities={"email": (address,)})
    return OutboundCard(token=token, kind=kind, request=request, person=person, address=address, link=LINK, more=more)


def a_closing(card: OutboundCard, sent: SentCard, **given: Any) -> tuple[SentCard, ClosedCard]:
    ending = {
        "state": "approved",
        "decided_by": "ana",
        "decided_name": "Ana",
        "decided_at": NOW,
        "decided_channel": "slack",
        **given,
    }
    request = replace(card.request, **ending)
    return sent, ClosedCard(request=request, person=card.person, token=card.token, link=card.link)
