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
from turn_fixtures import Ledger

from signoff.channels.channel_loader import open_channels
from signoff.channels.envelopes import InboundRequest
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.ids import show_code
from signoff.formats.replace import replace
from signoff.gateway.app import build_app
from signoff.gateway.vendors.channel_tasks import run_channels
from signoff.keys.secrets import SecretProvider
from signoff.languages.catalogue import text
from signoff.people.directory import development_directory
from signoff.plugins.loader import Plugins
from signoff.registry.catalog import Catalog
from signoff.registry.manifest.channel_sections import Channels, DeclaredChannel, RoutingRules
from signoff.store.store import open_store
from signoff.testing.fake_teams import CARD_TYPE, FakeTeams, fake_teams
from signoff.testing.vendor import VendorCard

RULES = RoutingRules(default=("office",))
ANA, BO, _, STRANGER = FakeTeams.identities


@dataclass
class Office:
    rig: GatewayRig
    http: httpx2.AsyncClient
    vendor: FakeTeams

    async def asked(self, words: str) -> tuple[ApprovalRequest, VendorCard]:
        request = await self.rig.turns.signoff.request(await self.rig.asked(words))
        code = show_code(request.code)
        await until(lambda: any(card.to == ANA and code in card.text for card in self.vendor.cards()))
        return request, next(card for card in self.vendor.cards() if card.to == ANA and code in card.text)

    async def post(self, raw: InboundRequest) -> httpx2.Response:
        headers = {name: value.encode("latin-1") for name, value in raw.headers.items()}
        return await self.http.post("/channels/office", content=raw.body, headers=headers)


def office_catalog(ledger: Ledger) -> Catalog:
    known = {"ana": ANA, "approver": BO}
    people = [
        replace(each, locale="en", identities={"teams": (known.get(each.id, f"none:{each.id}"),)}) for each in PEOPLE
    ]
    channels = Channels({"office": DeclaredChannel("office", "teams")}, RULES)
    return dataclasses.replace(rig_catalog(ledger), people=development_directory(people), channels=channels)


@pytest.fixture
async def office(client: Client, tmp_path: Path) -> AsyncIterator[Office]:
    async with (
        fake_teams() as vendor,
        open_store(f"sqlite:///{tmp_path}/signoff.db") as store,
        gateway_rig(client, store, f"office-{uuid.uuid4().hex[:12]}", catalog_of_ledger=office_catalog) as rig,
    ):
        vendor.clock = lambda: datetime.now(UTC)
        opened, problems = await open_channels(
            [DeclaredChannel("office", "teams", vendor.options)],
            store,
            public_url=BASE,
            clock=vendor.clock,
            secrets=SecretProvider(environment=vendor.environment),
            plugins=Plugins(),
        )
        assert problems == []
        async with (
            run_channels(rig.deps, opened, RULES) as inbound,
            http_of(build_app(rig.deps, inbound)) as http,
        ):
            made = Office(rig, http, vendor)
            for raw in vendor.introductions():
                assert (await made.post(raw)).status_code == 200
            yield made


async def test_press_runs_the_call_and_gets_its_result_in_the_response(office: Office) -> None:
    request, card = await office.asked("pay")
    response = await office.post(office.vendor.press(card, ANA, "approved"))
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    body = response.json()
    assert (body["statusCode"], body["type"]) == (200, CARD_TYPE)
    assert text("receipt.accepted.approved", "en") in response.text
    await until(lambda: len(office.rig.ledger.rows) == 1)
    settled = await office.rig.turns.signoff.request(request.id)
    assert (settled.state, settled.decided_by, settled.decided_channel) == ("approved", "ana", "teams")
    assert settled.votes[0].decision.signature
    for identity in (ANA, BO):
        await until(lambda to=identity: any("Approved by Ana in Teams" in each for each in office.vendor.reads(to)))
    # No reply besides the response, and no second card.
    assert len(office.vendor.posted) == 2


async def test_forged_or_foreign_activity_is_refused_by_status(office: Office) -> None:
    request, card = await office.asked("pay")
    true = office.vendor.press(card, ANA, "approved")
    assert {(await office.post(forged)).status_code for forged in office.vendor.forgeries(true)} == {401}
    stranger = await office.post(office.vendor.press(card, STRANGER, "approved"))
    assert stranger.json()["value"] == text("reply.stranger", "en")
    assert (await office.rig.turns.signoff.request(request.id)).state == "pending"
