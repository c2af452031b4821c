import dataclasses
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx2
import pytest
from gateway_rig import PEOPLE, GatewayRig, gateway_rig, http_of, rig_catalog, turn_of
from polling import until
from temporalio.client import Client
from turn_fixtures import Ledger

from signoff.channels.base import ChannelContext
from signoff.channels.envelopes import InboundRequest
from signoff.channels.slack.slack import Slack
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.ids import show_code
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.gateway.app import build_app
from signoff.gateway.vendors.channel_tasks import run_channels
from signoff.languages.catalogue import text
from signoff.people.directory import development_directory
from signoff.registry.catalog import Catalog
from signoff.registry.manifest.channel_sections import Channels, DeclaredChannel, RoutingRules
from signoff.store.store import Store
from signoff.testing.fake_slack import BOT_TOKEN, SIGNING_SECRET, FakeSlack, fake_slack
from signoff.testing.vendor import VendorCard

ON_SLACK = {"ana": "T1:UANA", "bo": "T1:UBO", "guest": "T1:UCY"}
ANA, BO, GUEST = ON_SLACK.values()
RULES = RoutingRules(default=("chat",))
SAID = "It is <b>due</b>, with 0 tools and correct horse."
ASKED = text("receipt.accepted.pending", "en")


def reached(person: Person) -> Person:
    known = ON_SLACK.get(person.id)
    return replace(person, locale="en", identities={"slack": (known,)}) if known else person


def slack_catalog(ledger: Ledger) -> Catalog:
    channels = Channels({"chat": DeclaredChannel("chat", "slack")}, RULES)
    people = development_directory([*map(reached, PEOPLE)])
    return dataclasses.replace(rig_catalog(ledger), people=people, channels=channels)


@dataclass
class Chat:
    rig: GatewayRig
    http: httpx2.AsyncClient
    slack: FakeSlack

    async def asked(self, words: str) -> ApprovalRequest:
        return await self.rig.turns.signoff.request(await self.rig.asked(words))

    def cards(self, code: str, to: str) -> list[VendorCard]:
        return [each for each in self.slack.cards() if each.to == to and code in each.text]

    async def card(self, code: str, to: str, words: str = "") -> VendorCard:
        await until(lambda: any(words in each.text for each in self.cards(code, to)))
        return next(each for each in reversed(self.cards(code, to)) if words in each.text)

    async def take(self, raw: InboundRequest) -> None:
        answer = await self.http.post("/channels/chat", content=raw.body, headers=dict(raw.headers))
        assert answer.status_code == 200

    async def reads(self, to: str, words: str) -> None:
        await until(lambda: any(words in each for each in self.slack.reads(to)))


@pytest.fixture
async def chat(client: Client, store: Store) -> AsyncIterator[Chat]:
    async with fake_slack() as vendor:
        vendor.clock = lambda: datetime.now(UTC)
        options = {"token": BOT_TOKEN, "signing_secret": SIGNING_SECRET, "api_url": f"{vendor.url}/api"}
        context = ChannelContext("chat", options, "https://signoff.example", vendor.clock, b"own")
        queue = f"asks-{uuid.uuid4().hex[:12]}"
        async with (
            gateway_rig(client, store, queue, catalog_of_ledger=slack_catalog) as rig,
            run_channels(rig.deps, {"chat": Slack(context)}, RULES) as receiver,
            http_of(build_app(rig.deps, receiver)) as http,
        ):
            yield Chat(rig, http, vendor)


async def test_agents_answer_reaches_the_asker_on_a_new_card_that_approves(chat: Chat) -> None:
    request = await chat.asked("pay")
    code = show_code(request.code)
    old = await chat.card(code, ANA)
    await chat.take(chat.slack.reply(old, ANA, "ask: Why 420?"))
    await chat.reads(ANA, ASKED)
    new = await chat.card(code, ANA, SAID)
    assert new.token != old.token
    assert f"{text('ask.person', 'en', who='Ana')}: “Why 420?”" in new.text
    assert f"{text('ask.agent', 'en')}: “{SAID}”" in new.text
    await chat.reads(ANA, text("end.replaced", "en"))
    assert [each.token for each in chat.cards(code, ANA)] == [new.token]
    await chat.take(chat.slack.press(old, ANA, "approved"))
    await chat.reads(ANA, text("why.thread", "en"))
    assert (await chat.rig.turns.signoff.request(request.id)).state == "pending"
    await chat.take(chat.slack.press(new, ANA, "approved"))
    result = await chat.rig.turns.signoff.result(turn_of(request.id))
    assert [call.code for call in result.calls] == ["ok"]
    [vote] = (await chat.rig.request(request.id)).votes
    assert (vote.decision.channel, vote.decision.thread != "") == ("slack", True)


async def test_every_approver_with_a_card_gets_the_answer(chat: Chat) -> None:
    request = await chat.asked("both")
    code = show_code(request.code)
    await chat.card(code, BO)
    await chat.take(chat.slack.reply(await chat.card(code, ANA), ANA, f"question {code} Why 420?"))
    for person in (ANA, BO):
        new = await chat.card(code, person, SAID)
        await chat.take(chat.slack.press(new, person, "approved"))
    result = await chat.rig.turns.signoff.result(turn_of(request.id))
    assert [call.code for call in result.calls] == ["ok"]


async def test_requester_who_knows_the_code_asks_nothing(chat: Chat) -> None:
    request = await chat.asked("pay")
    await chat.card(show_code(request.code), ANA)
    await chat.take(chat.slack.write(GUEST, f"ask {show_code(request.code)} Why 420?"))
    await chat.reads(GUEST, text("receipt.unknown", "en"))
    assert (await chat.rig.request(request.id)).messages == ()
