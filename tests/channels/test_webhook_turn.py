import dataclasses
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest
from gateway_rig import BASE, PEOPLE, GatewayRig, gateway_rig, http_of, rig_catalog
from polling import until
from temporalio.client import Client
from test_webhook import Receiver, receiving
from turn_fixtures import Ledger

from signoff.channels.channel_loader import open_channels
from signoff.channels.envelopes import InboundRequest
from signoff.contracts.approval import ApprovalRequest
from signoff.formats.replace import replace
from signoff.gateway.app import build_app
from signoff.gateway.vendors.channel_tasks import run_channels
from signoff.keys.secrets import SecretProvider
from signoff.people.directory import development_directory
from signoff.plugins.loader import Plugins
from signoff.registry.catalog import Catalog
from signoff.registry.manifest.channel_sections import Channels, DeclaredChannel, RoutingRules
from signoff.store.store import open_store
from signoff.testing.vendor import VendorCard

SLACK = 8.0
"""Allowance for a busy machine."""
RULES = RoutingRules(default=("hook",))


@dataclass
class Line:
    rig: GatewayRig
    http: httpx2.AsyncClient
    receiver: Receiver

    async def asked(self, text: str) -> tuple[ApprovalRequest, VendorCard]:
        request = await self.rig.turns.signoff.request(await self.rig.asked(text))
        code = f"{request.code[:3]}-{request.code[3:]}"
        await until(lambda: any(card.to == "ana" and code in card.text for card in self.receiver.cards()))
        return request, next(card for card in self.receiver.cards() if card.to == "ana" and code in card.text)

    async def post(self, raw: InboundRequest) -> int:
        answer = await self.http.post("/channels/hook", content=raw.body, headers=dict(raw.headers))
        assert answer.content == b"" or answer.status_code >= 400
        return answer.status_code


def hooked(ledger: Ledger) -> Catalog:
    people = [replace(each, identities={"webhook": (each.id,)}) for each in PEOPLE]
    channels = Channels({"hook": DeclaredChannel("hook", "webhook")}, RULES)
    return dataclasses.replace(rig_catalog(ledger), people=development_directory(people), channels=channels)


@pytest.fixture
async def line(client: Client, tmp_path: Path) -> AsyncIterator[Line]:
    async with (
        receiving() as receiver,
        open_store(f"sqlite:///{tmp_path}/signoff.db") as store,
        gateway_rig(client, store, f"hook-{uuid.uuid4().hex[:12]}", catalog_of_ledger=hooked) as rig,
    ):
        receiver.clock = lambda: datetime.now(UTC)
        declared = [DeclaredChannel("hook", "webhook", receiver.options)]
        opened, problems = await open_channels(
            declared,
            store,
            public_url=BASE,
            clock=receiver.clock,
            secrets=SecretProvider(environment=receiver.environment),
            plugins=Plugins(),
        )
        assert problems == []
        async with (
            run_channels(rig.deps, opened, RULES) as inbound,
            http_of(build_app(rig.deps, inbound)) as http,
        ):
            yield Line(rig, http, receiver)


async def test_signed_approval_runs_the_call_and_closes_every_card(line: Line) -> None:
    request, card = await line.asked("pay")
    raw = line.receiver.press(card, "ana", "approved", "fine")
    assert [await line.post(raw) for _ in range(3)] == [200, 200, 200]

    def over(identity: str) -> bool:
        return any("Ana" in words and "Webhook" in words for words in line.receiver.reads(identity))

    await until(lambda: len(line.rig.ledger.rows) == 1)
    settled = await line.rig.turns.signoff.request(request.id)
    assert (settled.state, settled.decided_by, settled.reason) == ("approved", "ana", "fine")
    vote = settled.votes[0]
    assert (vote.channel, vote.assurance, bool(vote.decision.signature)) == ("webhook", "channel", True)
    await until(lambda: any("Approved by Ana by webhook" in words for words in line.receiver.reads("approver")))
    assert settled.decided_at is not None
    assert (datetime.now(UTC) - settled.decided_at).total_seconds() < 2 + SLACK
    await until(lambda: over("ana"))
    receipts = [each for each in line.receiver.taken.values() if each["type"] == "answer.receipt"]
    assert [each["data"]["status"] for each in receipts] == ["accepted"]
    assert len(line.rig.ledger.rows) == 1


async def test_forged_or_malformed_message_is_refused_by_status(line: Line) -> None:
    request, card = await line.asked("pay")
    true = line.receiver.press(card, "ana", "approved")
    assert {await line.post(forged) for forged in line.receiver.forgeries(true)} == {401}
    assert await line.post(line.receiver.sign(b"{")) == 400
    assert await line.post(line.receiver.sign(b"{}" + b" " * (3 * 1024 * 1024))) == 413
    assert (await line.http.get("/channels/hook")).status_code in (401, 405)
    assert (await line.rig.turns.signoff.request(request.id)).state == "pending"
