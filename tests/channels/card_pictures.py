"""Draws docs/images/cards.svg from the messages that the fake vendors hold.

`python tests/channels/card_pictures.py` writes the file."""

import asyncio
import html
import textwrap
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple

from signoff.approvals.card import render_card
from signoff.channels.base import Channel, ChannelContext
from signoff.channels.channel_loader import channel_class, read_options
from signoff.channels.envelopes import ClosedCard, OutboundCard, SentCard
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import REQUIRES_APPROVAL
from signoff.contracts.content import Content
from signoff.contracts.decision import Verdict
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.person import Person, Principal
from signoff.contracts.requests import DecisionAuthor, DecisionDraft
from signoff.keys.secrets import SecretProvider
from signoff.plugins.loader import Plugins
from signoff.registry.manifest.loader import load_manifest
from signoff.store.delivery_queue import delivery_token
from signoff.testing.fake_mail import FakeMail, fake_mail
from signoff.testing.fake_slack import FakeSlack, fake_slack
from signoff.testing.fake_whatsapp import FakeWhatsApp, fake_whatsapp
from signoff.testing.rig import RecordingDecisions

NOW: Final = datetime(2026, 11, 22, 14, 0, tzinfo=UTC)
PICTURE: Final = Path(__file__).parents[2] / "docs" / "images" / "cards.svg"
PUBLIC_URL: Final = "https://signoff.example"
MAIL, SLACK, WHATSAPP = "ana@people.example", FakeSlack.identities[0], FakeWhatsApp.identities[0]
WIDTH, GAP, PADDING = 300, 20, 14
"""Pixels."""
Style = Literal["title", "text", "button"]
CHARS: Final[dict[Style, int]] = {"title": 33, "text": 43}
"""Characters in the width of a card."""
LEADING: Final[dict[Style, int]] = {"title": 20, "text": 17, "button": 32}
_MANIFEST: Final = Path(__file__).parents[2] / "examples" / "payments" / "signoff.yaml"
_SECRET: Final = bytes(32)


class Line(NamedTuple):
    text: str = ""
    style: Style = "text"


class Card(NamedTuple):
    vendor: str
    lines: tuple[Line, ...]


class Story:
    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.catalog = load_manifest(_MANIFEST)
        self.decisions = RecordingDecisions(self.catalog.people, lambda: NOW)
        self.ana, self.clerk = self._person("ana"), self._person("clerk")
        self.request = self.decisions.open(self._proposed())
        self.cards: list[tuple[Channel, OutboundCard, SentCard]] = []

    async def send_card(self, vendor: FakeSlack | FakeMail | FakeWhatsApp, kind: str, address: str) -> None:
        made, secrets = channel_class(kind, Plugins()), {} if isinstance(vendor, FakeMail) else vendor.environment
        channel = made(
            ChannelContext(
                kind,
                await read_options(made, vendor.options, SecretProvider(environment=secrets)),
                PUBLIC_URL,
                lambda: NOW,
                _SECRET,
            )
        )
        self.stack.push_async_callback(channel.close_down)
        token = delivery_token(_SECRET, self.request.id, self.request.revision, self.ana.id, kind)
        link = f"{PUBLIC_URL}/approvals/{self.request.id}"
        card = OutboundCard(token=token, request=self.request, person=self.ana, address=address, link=link)
        self.cards.append((channel, card, await channel.deliver(card, None)))

    async def decide(self, verdict: Verdict, channel: str, reason: str) -> None:
        asked = self.request
        draft = DecisionDraft.model_validate(
            {
                "approval_id": asked.id,
                "revision": asked.revision,
                "question_hash": asked.question_hash,
                "verdict": verdict,
                "reason": reason,
                "delivery_id": "1",
            }
        )
        await self.decisions.decide(draft, DecisionAuthor(self.ana, channel, "channel", NOW))

    async def close_cards(self) -> None:
        request = self.decisions.request(self.request.id)
        for channel, card, sent in self.cards:
            closed = ClosedCard(request=request, person=self.ana, token=card.token, link=card.link)
            await channel.close(sent, closed)

    def _person(self, name: str) -> Person:
        found = self.catalog.people.find(name)
        assert found is not None
        return found

    def _proposed(self) -> ApprovalRequest:
        tool = self.catalog.tool("top_up")
        assert tool is not None
        args = {"office": "Lisbon", "amount": 80.0}
        key = ApprovalKey(TurnKey("main", "petty-cash", "t1"), "c1.1")
        card = render_card(
            effect=tool.effect,
            title=tool.title,
            tool=tool.name,
            args=args,
            schema=tool.input_schema,
            agent_says="The cash box is low.",
        )
        return ApprovalRequest(
            id=key.id,
            code="K7Q2FM",
            digest="digest",
            tenant=key.turn.tenant,
            turn=key.turn.turn,
            session=key.turn.session,
            actor="payables",
            call=key.call,
            tool=tool.name,
            args=Content(inline=args),
            card=card,
            rule=REQUIRES_APPROVAL,
            approvers=self.catalog.approvers(tool.name),
            requester=Principal(user=self.clerk.id, name=self.clerk.name),
        )


async def cards_svg() -> str:
    async with AsyncExitStack() as stack:
        slack = await stack.enter_async_context(fake_slack())
        phone = await stack.enter_async_context(fake_whatsapp())
        # No test answers this email, so no port for answers is open.
        mail = await stack.enter_async_context(fake_mail(24))
        for vendor in (slack, phone):
            vendor.clock = lambda: NOW
        story = Story(stack)
        await story.send_card(slack, "slack", SLACK)
        await story.send_card(mail, "email", MAIL)
        await story.send_card(phone, "whatsapp", WHATSAPP)
        asked = [read_slack(slack), read_mail(mail), read_whatsapp(phone)]
        await story.decide("approved", "email", "The receipts are in the safe.")
        await story.close_cards()
        return draw([asked, [read_slack(slack), read_mail(mail), read_whatsapp(phone, after=1)]])


def read_slack(slack: FakeSlack) -> Card:
    [message] = [each for each in slack.messages if each.user == SLACK.rpartition(":")[2]]
    lines: list[Line] = []
    for block in message.blocks:
        if block["type"] == "actions":
            lines += [Line(each["text"]["text"], "button") for each in block["elements"]]
            continue
        style: Style = {"header": "title", "section": "text"}[block["type"]]  # type: ignore[assignment]
        lines += [Line(each, style) for each in block["text"]["text"].split("\n")] + [Line()]
    return Card("Slack", tuple(lines))


def read_mail(mail: FakeMail) -> Card:
    sent = mail.taken[-1]
    part = sent.get_body(("plain",))
    assert part is not None
    body = part.get_content().strip().splitlines()
    return Card("Mail", (Line(sent["Subject"], "title"), Line(), *map(Line, body)))


def read_whatsapp(phone: FakeWhatsApp, after: int = 0) -> Card:
    *_, bubble = [each for each in phone.bubbles if each.person == WHATSAPP][after:]
    buttons = (Line(each, "button") for each in bubble.buttons)
    return Card("WhatsApp", (*map(Line, bubble.text.splitlines()), Line(), *buttons))


def draw(rows: Sequence[Sequence[Card]]) -> str:
    parts: list[str] = []
    top = GAP
    for row in rows:
        drawn = [[each for line in card.lines for each in wrap(line)] for card in row]
        height = PADDING * 2 + max(sum(LEADING[line.style] for line in lines) for lines in drawn)
        for number, (card, lines) in enumerate(zip(row, drawn, strict=True)):
            x = GAP + number * (WIDTH + GAP)
            parts.append(f'<text x="{x}" y="{top + 12}" font-weight="600" fill="#57606a">{card.vendor}</text>')
            parts.append(box(x, top + 22, WIDTH, height, "#fff", "#d0d7de"))
            y = top + 22 + PADDING
            for line in lines:
                parts += draw_line(line, x + PADDING, y)
                y += LEADING[line.style]
        top += height + 22 + 2 * GAP
    width = GAP + len(rows[0]) * (WIDTH + GAP)
    return _SVG.format(width=width, height=top - GAP, body="\n".join(parts))


def wrap(line: Line) -> list[Line]:
    if line.style == "button":
        return [line]
    return [Line(each, line.style) for each in textwrap.wrap(line.text, CHARS[line.style])] or [Line()]


def draw_line(line: Line, x: int, y: int) -> list[str]:
    words = html.escape(line.text, quote=False)
    if line.style == "button":
        middle = f'x="{x + (WIDTH - 2 * PADDING) // 2}" text-anchor="middle"'
        label = f'<text {middle} y="{y + 18}" font-weight="600" fill="#1d5fa8">{words}</text>'
        return [box(x, y, WIDTH - 2 * PADDING, 26, "#f6f8fa", "#d0d7de"), label]
    bold = ' font-weight="600" font-size="13"' if line.style == "title" else ""
    return [f'<text x="{x}" y="{y + 12}"{bold}>{words}</text>'] if words else []


def box(x: int, y: int, width: int, height: int, fill: str, stroke: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{stroke}"/>'


_SVG: Final = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" \
aria-label="One request in Slack, mail and WhatsApp: the cards that ask, and the cards after the approval" \
font-family="system-ui, sans-serif" font-size="12" fill="#1f2328">
<rect width="{width}" height="{height}" fill="#f6f8fa"/>
{body}
</svg>
"""


if __name__ == "__main__":
    PICTURE.write_text(asyncio.run(cards_svg()), encoding="utf-8")
