"""One request on three channels: the email answer decides, all cards close, and a late click gets its receipt."""

import shutil
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from demo.polling import Unexpected, expect, until
from demo.proof import recorded
from demo.scenes import Scene
from demo.stage import Stage
from signoff.channels.envelopes import InboundRequest
from signoff.contracts.clock import system_clock
from signoff.contracts.ids import TurnKey, show_code
from signoff.temporal.embedded_server import free_port
from signoff.testing.fake_mail import FakeMail, fake_mail, text_of
from signoff.testing.fake_slack import FakeSlack, fake_slack
from signoff.testing.fake_whatsapp import FakeWhatsApp, fake_whatsapp
from signoff.testing.vendor import VendorCard

SLACK, PHONE = FakeSlack.identities[0], FakeWhatsApp.identities[0]
MAIL: Final = "ana@people.example"
_PAID: Final = "SELECT office, amount FROM top_ups"


@dataclass
class Vendors:
    """Strict fakes of the three vendors, and the installation that uses them."""

    slack: FakeSlack
    mail: FakeMail
    phone: FakeWhatsApp
    manifest: Path
    env: Mapping[str, str]

    async def play(self, stage: Stage) -> AsyncIterator[Scene]:
        """Play every scene in order."""
        key = await stage.ask("top up petty cash in Lisbon by 80 euro", user="clerk")
        await stage.suspended(key)
        yield await self.three_cards(stage, key)
        late = self.slack.press(self._slack_card(), SLACK, "denied", "Who is this for?")
        yield await self.forged(stage, key)
        yield await self.answered_by_mail(stage, key)
        yield await self.closed_everywhere(stage, key)
        yield await self.late_click(stage, key, late)

    async def three_cards(self, stage: Stage, key: TurnKey) -> Scene:
        """One card on each channel, with the same action and code."""
        code = show_code((await stage.asked(key)).code)
        cards = await until("three cards", self._cards, lambda found: all(map(bool, found)))
        expect("cards on each channel", [1, 1, 1], [len(each) for each in cards])
        for words in (cards[0][0], cards[1][0], cards[2][0]):
            expect("what a card says", (True, True), ("petty cash of Lisbon" in words, code in words))
        return Scene(
            f"80 EUR for Lisbon: Ana has a card in Slack, by email and on WhatsApp, each with the code {code}", key
        )

    async def forged(self, stage: Stage, key: TurnKey) -> Scene:
        """A click without Slack's signature, and an email with an unproved sender."""
        true = self.slack.press(self._slack_card(), SLACK, "approved")
        status = await self._bring(stage, "slack", InboundRequest(true.body + b"&x=1", true.headers))
        expect("a click with another body than was signed", 401, status)
        await self.mail.reply(self.mail.mails(MAIL)[0], MAIL, "approve", verdict="fail")
        await until("an answer to the mail", self._mails, lambda mails: len(mails) == 2)
        expect("votes after both", (), (await stage.asked(key)).votes)
        return Scene(
            "a click without Slack's signature gets 401, an email without DMARC a reply; both decide nothing", key
        )

    async def answered_by_mail(self, stage: Stage, key: TurnKey) -> Scene:
        """A decision and a courtesy count. Any further word would bring a question back."""
        await self.mail.reply(self.mail.mails(MAIL)[0], MAIL, "Approve\n\nThank you.")
        expect("the payment", "ok", (await stage.outcome(key)).code)
        request = await stage.asked(key)
        expect("who decided, and how", ("ana", "email"), (request.decided_by, request.decided_channel))
        expect("payments", [("Lisbon", 80.0)], stage.rows(_PAID))
        return Scene("Ana answers the mail with “Approve”: paid, once", key)

    async def closed_everywhere(self, stage: Stage, key: TurnKey) -> Scene:
        """Slack's card is edited; WhatsApp and the email thread get a message."""
        told = "Approved by Ana Sousa"
        decided = (await stage.asked(key)).decided_at or system_clock()
        began = time.monotonic() - (system_clock() - decided).total_seconds()
        await until("the end on each channel", self._everything, lambda every: all(told in each for each in every))
        took = time.monotonic() - began
        buttons = [each["action_id"] for block in self.slack.messages[0].blocks for each in block.get("elements", ())]
        expect("buttons left in Slack", ["signoff.open"], buttons)
        return Scene(f"{took:.1f} s later Slack, WhatsApp and the mail's thread say: {told} by email, and when", key)

    async def late_click(self, stage: Stage, key: TurnKey, late: InboundRequest) -> Scene:
        """The card was still open on another screen."""
        expect("the late click", 200, await self._bring(stage, "slack", late))

        async def told() -> str:
            return "\n".join(self.slack.reads(SLACK))

        await until("the receipt of the late click", told, lambda words: "Already decided. Approved by Ana" in words)
        expect("payments", [("Lisbon", 80.0)], stage.rows(_PAID))
        found = await recorded(stage, key)
        sent = [facts["channel"] for _, facts in found.of(key, "delivery") if facts.get("event") == "sent"]
        expect("cards in the record", ["mail", "phone", "slack"], sorted(sent))
        return Scene(f"a late Deny in Slack changes nothing, and its reply names the first decider; {found.words}", key)

    async def _bring(self, stage: Stage, channel: str, raw: InboundRequest) -> int:
        reply = await stage.http.post(f"/channels/{channel}", content=raw.body, headers=dict(raw.headers))
        return reply.status_code

    async def _cards(self) -> tuple[list[str], list[str], list[str]]:
        slack = [each.text for each in self.slack.cards() if each.to == SLACK]
        phone = [each.text for each in self.phone.cards() if each.to == PHONE]
        return slack, [text_of(mail) for mail in self.mail.mails(MAIL)], phone

    async def _mails(self) -> list[Any]:
        return list(self.mail.mails(MAIL))

    async def _everything(self) -> list[str]:
        mails = "\n".join(text_of(mail) for mail in self.mail.mails(MAIL))
        return ["\n".join(self.slack.reads(SLACK)), "\n".join(self.phone.reads(PHONE)), mails]

    def _slack_card(self) -> VendorCard:
        found = next((each for each in self.slack.cards() if each.to == SLACK), None)
        if found is None:
            raise Unexpected("Slack: expected a card, seen none")
        return found


@asynccontextmanager
async def vendors(example: Path, folder: Path) -> AsyncIterator[Vendors]:
    """Yield three vendors, and a copy of the example in `folder` whose people have addresses there."""
    async with AsyncExitStack() as stack:
        slack = await stack.enter_async_context(fake_slack())
        phone = await stack.enter_async_context(fake_whatsapp())
        mail = await stack.enter_async_context(fake_mail(free_port()))
        for vendor in (slack, phone):
            # The gateway is a separate process that checks signed times by the real clock.
            vendor.clock = system_clock
        # A person has written to the number before, so buttons are allowed for a day.
        phone.write(PHONE, "hello")
        copy = shutil.copytree(example, folder / example.name)
        manifest = _with_channels(copy, {"slack": slack.options, "mail": mail.options, "phone": phone.options})
        yield Vendors(slack, mail, phone, manifest, {**slack.environment, **phone.environment})


def _with_channels(copy: Path, options: Mapping[str, Mapping[str, Any]]) -> Path:
    kinds = {"slack": "slack", "mail": "email", "phone": "whatsapp"}
    channels = {name: {"kind": kinds[name], **dict(given)} for name, given in options.items()}
    manifest, people = copy / "signoff.yaml", copy / "people.yaml"
    sections = {"channels": channels, "routing": {"default": list(channels), "all": True}}
    manifest.write_text(manifest.read_text(encoding="utf-8") + "\n" + yaml.safe_dump(sections), encoding="utf-8")
    everybody = yaml.safe_load(people.read_text(encoding="utf-8"))
    for person in everybody:
        if person["id"] == "ana":
            person["identities"] = {"slack": [SLACK], "email": [MAIL], "whatsapp": [PHONE]}
    people.write_text(yaml.safe_dump(everybody), encoding="utf-8")
    return manifest
