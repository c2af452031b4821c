"""The pictures of cards in docs/channels.md: `python tests/channels/card_pictures.py docs/images` makes them anew.

The mail is shown as it is sent. Slack's and WhatsApp's messages are drawn here, from what the fake vendors hold.
"""

import asyncio
import html
import shutil
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, StrictUndefined
from playwright.async_api import Browser, async_playwright

from signoff.approvals.card import render_card
from signoff.channels.base import Channel, ChannelContext
from signoff.channels.channel_loader import channel_class, read_options
from signoff.channels.envelopes import ChannelReply, ClosedCard, OutboundCard, SentCard
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import REQUIRES_APPROVAL
from signoff.contracts.content import Content
from signoff.contracts.decision import Verdict
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.person import Person, Principal
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import DecisionAuthor, DecisionDraft
from signoff.keys.secrets import SecretProvider
from signoff.plugins.loader import Plugins
from signoff.registry.manifest.loader import load_manifest
from signoff.store.delivery_queue import delivery_token
from signoff.testing.fake_mail import FakeMail, fake_mail
from signoff.testing.fake_slack import FakeSlack, fake_slack
from signoff.testing.fake_whatsapp import FakeWhatsApp, fake_whatsapp
from signoff.testing.rig import RecordingDecisions
from signoff.texts.endings import receipt_words
from signoff.texts.formatter import formatter_for

NOW: Final = datetime(2026, 11, 22, 14, 0, tzinfo=UTC)
WIDE, CHAT, PHONE = 640, 400, 360
PUBLIC_URL: Final = "https://signoff.example"
MAIL, SLACK, WHATSAPP = "ana@people.example", FakeSlack.identities[0], FakeWhatsApp.identities[0]
ARGUMENTS: Final = ("--no-sandbox", "--disable-gpu", "--disable-lcd-text")
"""Letters without coloured edges make files that are half as large."""
_MANIFEST: Final = Path(__file__).parents[2] / "examples" / "payments" / "signoff.yaml"
_SECRET: Final = bytes(32)


@dataclass(frozen=True)
class Picture:
    """A page, and how wide its window is, in CSS pixels."""

    page: str
    width: int


@dataclass(frozen=True)
class Taken:
    """A picture's file, and the words that the browser shows on it."""

    file: Path
    words: str


class Story:
    """One request to Ana on several channels, as `demo channels` plays it; `stack` closes the channels."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.catalog = load_manifest(_MANIFEST)
        self.decisions = RecordingDecisions(self.catalog.people, lambda: NOW)
        self.ana, self.clerk = self._person("ana"), self._person("clerk")
        self.request = self.decisions.open(self._proposed())
        self.cards: list[tuple[Channel, OutboundCard, SentCard]] = []

    async def told(self, vendor: FakeSlack | FakeMail | FakeWhatsApp, kind: str, address: str) -> Channel:
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
        return channel

    async def decided(self, verdict: Verdict, channel: str, reason: str = "") -> Receipt:
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
        return await self.decisions.decide(draft, DecisionAuthor(self.ana, channel, "channel", NOW))

    async def over(self) -> None:
        request = self.decisions.request(self.request.id)
        for channel, card, sent in self.cards:
            closed = ClosedCard(request=request, person=self.ana, token=card.token, link=card.link)
            await channel.close(sent, closed)

    def _person(self, name: str) -> Person:
        found = self.catalog.people.find(name)
        assert found is not None
        return found

    def _proposed(self) -> ApprovalRequest:
        """What the example's gates ask about its script's proposal."""
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


async def pictures() -> dict[str, Picture]:
    """Every picture by name, drawn from what the vendors hold before and after the decision."""
    async with AsyncExitStack() as stack:
        slack = await stack.enter_async_context(fake_slack())
        phone = await stack.enter_async_context(fake_whatsapp())
        quiet = await stack.enter_async_context(fake_whatsapp(template=True))
        # Nobody answers here, so the port for answers is never opened.
        mail = await stack.enter_async_context(fake_mail(24))
        for vendor in (slack, phone, quiet):
            vendor.clock = lambda: NOW
        quiet.silent.add(WHATSAPP)
        story = Story(stack)
        chat = await story.told(slack, "slack", SLACK)
        await story.told(mail, "email", MAIL)
        await story.told(phone, "whatsapp", WHATSAPP)
        made = {"email": Picture(html_of(mail), WIDE), "email-phone": Picture(html_of(mail), PHONE)}
        made |= {"slack": drawn_slack(slack), "whatsapp": drawn_whatsapp(phone)}
        await story.decided("approved", "email", "The receipts are in the safe.")
        await story.over()
        late = await story.decided("denied", "slack")
        respond = {"response_url": f"{slack.url}/respond/{SLACK.rpartition(':')[2]}"}
        page_text = receipt_words(late, formatter_for(story.ana, NOW), story.cards[0][1].link, code=story.request.code)
        await chat.answer(respond, ChannelReply(text=page_text, receipt=late))
        made |= {"email-closed": Picture(html_of(mail), WIDE), "slack-closed": drawn_slack(slack)}
        made["whatsapp-closed"] = drawn_whatsapp(phone, after=1)
        await Story(stack).told(quiet, "whatsapp", WHATSAPP)
        made["whatsapp-template"] = drawn_whatsapp(quiet)
    return made


def html_of(mail: FakeMail) -> str:
    """The HTML of the last mail, as it was sent."""
    part = mail.taken[-1].get_body(("html",))
    assert part is not None
    return str(part.get_content())


def drawn_slack(slack: FakeSlack) -> Picture:
    """Ana's conversation with the app. A block that cannot be drawn raises `UndefinedError`."""
    mine = [each for each in slack.messages if each.user == SLACK.rpartition(":")[2]]
    messages = [
        {"blocks": each.blocks or _said(each.text), "private": each.ephemeral, "clock": f"{NOW:%H:%M}"} for each in mine
    ]
    return Picture(_SLACK.render(messages=messages), WIDE)


def drawn_whatsapp(phone: FakeWhatsApp, after: int = 0) -> Picture:
    """Ana's conversation with our number, from `after` that many messages on.

    What answers another message shows the first line of that.
    """
    mine = [each for each in phone.bubbles if each.person == WHATSAPP]
    first = {each.name: each.text.partition("\n")[0] for each in mine}
    bubbles = [{"text": each.text, "about": first.get(each.about, ""), "buttons": list(each.buttons)} for each in mine]
    return Picture(_WHATSAPP.render(bubbles=bubbles[after:]), CHAT)


async def take(made: Mapping[str, Picture], folder: Path) -> dict[str, Taken]:
    """`channel-<name>.png` of each picture, as chromium shows it."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        taken = {name: await _shown(browser, picture, folder / f"channel-{name}.png") for name, picture in made.items()}
        await browser.close()
    return taken


async def _shown(browser: Browser, picture: Picture, file: Path) -> Taken:
    window = await browser.new_page(viewport={"width": picture.width, "height": 100}, color_scheme="light")
    await window.set_content(picture.page)
    await window.screenshot(path=file, full_page=True)
    words = await window.inner_text("body")
    await window.close()
    return Taken(file, words)


def _said(text: str) -> list[dict[str, Any]]:
    """A message without blocks: Slack reads its text, in which three characters are written as entities."""
    return [{"type": "section", "text": {"text": html.unescape(text)}}]


_PAGES: Final = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
_FONT: Final = "font:15px/1.45 -apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;overflow-wrap:anywhere"
_SLACK: Final = _PAGES.from_string(
    """<!doctype html><meta charset="utf-8"><style>
body{margin:0;padding:6px 20px 16px;background:#fff;color:#1d1c1d;FONT}
.message{display:grid;grid-template-columns:36px 1fr;gap:10px;padding:10px 0 4px}
.face{width:36px;height:36px;border-radius:6px;background:#1f2937;color:#fff;font-weight:700;
 display:grid;place-items:center}
.who{font-weight:700}.app{background:#e8e8e8;color:#616061;font-size:10px;padding:1px 4px;border-radius:3px}
.faint{color:#616061;font-size:12px}
h3{font-size:18px;margin:6px 0}
p{margin:6px 0;white-space:pre-wrap}
.buttons{display:flex;flex-wrap:wrap;gap:8px;margin:10px 0 4px}
.button{border:1px solid #bbb;border-radius:5px;padding:5px 12px;
 font-weight:700;font-size:14px}
.primary{background:#007a5a;border-color:#007a5a;color:#fff}.danger{background:#cc2e45;border-color:#cc2e45;color:#fff}
</style>
{% for message in messages %}
<div class="message"><div class="face">S</div><div>
{% if message.private %}<div class="faint">Only visible to you</div>{% endif %}
<span class="who">Signoff</span> <span class="app">APP</span> <span class="faint">{{ message.clock }}</span>
{% for block in message.blocks %}
{% if block.type == "header" %}<h3>{{ block.text.text }}</h3>
{% elif block.type == "section" %}<p>{{ block.text.text }}</p>
{% else %}<div class="buttons">{% for button in block["elements"] %}
<div class="button {{ button.style | default("") }}">{{ button.text.text }}</div>{% endfor %}</div>
{% endif %}
{% endfor %}
</div></div>
{% endfor %}
""".replace("FONT", _FONT)
)
_WHATSAPP: Final = _PAGES.from_string(
    """<!doctype html><meta charset="utf-8"><style>
body{margin:0;padding:14px 14px 6px;background:#efeae2;color:#111b21;FONT}
.bubble{display:flow-root;max-width:340px;margin-bottom:10px;background:#fff;border-radius:8px;
 box-shadow:0 1px 1px #0002}
.text{padding:8px 10px;white-space:pre-wrap}
.about{margin:6px 6px 0;padding:6px 10px;border-left:4px solid #06cf9c;border-radius:6px;background:#f0f2f5;
 color:#54656f;font-size:13px}
.about b{display:block;color:#008069}
.button{border-top:1px solid #e9edef;padding:9px;text-align:center;color:#027eb5;font-weight:500}
</style>
{% for bubble in bubbles %}
<div class="bubble">
{% if bubble.about %}<div class="about"><b>Signoff</b>{{ bubble.about }}</div>{% endif %}
<div class="text">{{ bubble.text }}</div>
{% for title in bubble.buttons %}<div class="button">{{ title }}</div>{% endfor %}
</div>
{% endfor %}
""".replace("FONT", _FONT)
)


async def _main(folder: Path) -> None:
    for taken in (await take(await pictures(), folder)).values():
        print(f"{taken.file.name}: {taken.file.stat().st_size} bytes")


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
