import asyncio
import dataclasses
import re
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from gateway_login import answered, as_person, bearer, browser, hidden, token_of, words
from gateway_rig import PEOPLE, GatewayRig, gateway_rig, http_of, rig_catalog
from polling import until
from sqlalchemy import update
from temporalio.client import Client
from turn_fixtures import Ledger

from signoff.channels.base import ChannelContext
from signoff.channels.outbound.dispatcher import TICK
from signoff.channels.slack.slack import Slack
from signoff.contracts.ids import show_code
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.gateway.app import build_app
from signoff.gateway.vendors.channel_tasks import run_channels
from signoff.people.directory import development_directory
from signoff.registry.catalog import Catalog
from signoff.registry.manifest.channel_sections import Channels, DeclaredChannel, RoutingRules
from signoff.registry.manifest.room_sections import TeamRoom
from signoff.store.questions.taken_requests import TAKEN_FOR, TakenRequests
from signoff.store.store import Store
from signoff.store.tables import TAKEN_REQUESTS
from signoff.testing.fake_slack import BOT_TOKEN, SIGNING_SECRET, FakeSlack, fake_slack
from signoff.testing.vendor import VendorCard

ON_SLACK = {"ana": "T1:UANA", "approver": "T1:UBO", "guest": "T1:UCY"}


def reached(person: Person) -> Person:
    known = ON_SLACK.get(person.id)
    return replace(person, identities={"slack": (known,)}) if known else person


def room_catalog(ledger: Ledger) -> Catalog:
    chat, rooms = DeclaredChannel("chat", "slack"), {"role:approvers": (TeamRoom("chat", FakeSlack.room),)}
    channels = Channels({"chat": chat}, RoutingRules(), rooms)
    people = development_directory([*map(reached, PEOPLE)])
    return dataclasses.replace(rig_catalog(ledger), people=people, channels=channels)


@dataclass
class Team:
    rig: GatewayRig
    http: httpx2.AsyncClient
    slack: FakeSlack

    async def card(self, code: str) -> VendorCard:
        await until(lambda: any(code in each.text for each in self.slack.room_cards()))
        return next(each for each in self.slack.room_cards() if code in each.text)

    async def press(self, code: str, identity: str, act: str) -> None:
        raw = self.slack.press_room(await self.card(code), identity, act)  # type: ignore[arg-type]
        answer = await self.http.post("/channels/chat", content=raw.body, headers=dict(raw.headers))
        assert answer.status_code == 200

    def shows(self, code: str, words_shown: str) -> bool:
        return any(code in each.text and words_shown in each.text for each in self.slack.room_cards())


@pytest.fixture
async def team(client: Client, store: Store) -> AsyncIterator[Team]:
    async with fake_slack() as vendor:
        vendor.clock = lambda: datetime.now(UTC)
        options = {"token": BOT_TOKEN, "signing_secret": SIGNING_SECRET, "api_url": f"{vendor.url}/api"}
        context = ChannelContext("chat", options, "https://signoff.example", vendor.clock, b"own")
        queue = f"rooms-{uuid.uuid4().hex[:12]}"
        async with (
            gateway_rig(client, store, queue, catalog_of_ledger=room_catalog) as rig,
            run_channels(rig.deps, {"chat": Slack(context)}, RoutingRules()) as receiver,
            http_of(build_app(rig.deps, receiver)) as http,
        ):
            yield Team(rig, http, vendor)


async def until_taken(taken: TakenRequests, approval: str) -> None:
    async with asyncio.timeout(30):
        while approval not in await taken.list_of("main"):
            await asyncio.sleep(0.05)


async def age_takings(rig: GatewayRig, by: timedelta) -> None:
    back = round(by.total_seconds() * 1000)
    age = update(TAKEN_REQUESTS).values(taken_at=TAKEN_REQUESTS.c.taken_at - back)
    await rig.deps.store.run(lambda connection: connection.execute(age).rowcount)


async def listed(rig: GatewayRig, approval: str, person: str) -> dict[str, Any]:
    answer = await rig.http.get("/v1/approvals", headers=bearer(await token_of(rig, person)))
    return next(each for each in answer.json()["approvals"] if each["id"] == approval)


async def test_taken_request_is_named_in_room_and_inbox_and_decided_by_another(team: Team) -> None:
    request = await team.rig.turns.signoff.request(await team.rig.asked("pay"))
    code = show_code(request.code)
    await team.press(code, "T1:UANA", "take")
    await until(lambda: team.shows(code, "Ana has taken it until"))
    async with browser(team.rig) as page:
        await as_person(page, "approver")
        assert "taken by Ana until" in words((await page.get("/")).text)
        assert "Ana has taken it until" in words((await page.get(f"/approvals/{request.id}")).text)
        assert (await answered(page, request.id, verdict="denied", reason="no")).status_code == 200
        begun = time.process_time()
        await until(lambda: team.shows(code, "Denied by Approver"))
        assert time.process_time() - begun + 2 * TICK < 2.0
    assert (await team.rig.turns.signoff.request(request.id)).decided_by == "approver"
    assert not any(str(value) in each.text for each in team.slack.room_cards() for value in request.args.inline or {})


async def test_approvers_take_and_give_back_in_the_inbox(team: Team) -> None:
    request = await team.rig.turns.signoff.request(await team.rig.asked("pay"))
    code, path = show_code(request.code), f"/approvals/{request.id}/take"
    taken = TakenRequests(team.rig.deps.store)
    async with browser(team.rig) as page:
        await as_person(page, "guest")
        assert f'action="{path}"' not in (await page.get(f"/approvals/{request.id}")).text
        await as_person(page, "ana")
        form = hidden((await page.get(f"/approvals/{request.id}")).text, path)
        assert (await page.post(path, data={**form, "token": "x"})).status_code == 403
        shown = await page.post(path, data=form, follow_redirects=True)
        assert "You have taken it until" in words(shown.text)
        await until(lambda: team.shows(code, "Ana has taken it until"))
        await as_person(page, "approver")
        assert f'action="{path}"' not in (await page.get(f"/approvals/{request.id}")).text
        await as_person(page, "ana")
        form = hidden((await page.get(f"/approvals/{request.id}")).text, path)
        assert form["act"] == "release"
        assert (await page.post(path, data=form)).status_code == 303
        await until(lambda: not team.shows(code, "has taken it"))
    assert await taken.list_of("main") == {}
    acts = [each.facts.get("event") for each in await team.rig.records(request.id)]
    assert [each for each in acts if each in ("taken", "released")] == ["taken", "released"]


async def test_requester_cannot_take_a_request_by_a_forged_form(team: Team) -> None:
    request = await team.rig.turns.signoff.request(await team.rig.asked("pay"))
    path = f"/approvals/{request.id}/take"
    async with browser(team.rig) as page:
        await as_person(page, "ana")
        form = hidden((await page.get(f"/approvals/{request.id}")).text, path)
        await as_person(page, "guest")
        refused = await page.post(path, data=form)
    assert refused.status_code == 403
    assert await TakenRequests(team.rig.deps.store).list_of("main") == {}


async def test_list_of_the_api_names_the_holder_until_the_taking_lapses(team: Team) -> None:
    request = await team.rig.turns.signoff.request(await team.rig.asked("pay"))
    await team.press(show_code(request.code), "T1:UANA", "take")
    taken = TakenRequests(team.rig.deps.store)
    await until_taken(taken, request.id)
    held = (await taken.list_of("main"))[request.id]
    card = await listed(team.rig, request.id, "approver")
    assert (card["taken_by"], datetime.fromisoformat(card["taken_until"])) == ("ana", held.lapses_at)
    await age_takings(team.rig, TAKEN_FOR)
    card = await listed(team.rig, request.id, "approver")
    assert (card["taken_by"], card["taken_until"]) == ("", None)


async def test_open_list_changes_with_the_end_of_a_taking(team: Team) -> None:
    request = await team.rig.turns.signoff.request(await team.rig.asked("pay"))
    await team.press(show_code(request.code), "T1:UANA", "take")
    await until_taken(TakenRequests(team.rig.deps.store), request.id)
    async with browser(team.rig) as page:
        await as_person(page, "approver")
        first, again = [(await page.get("/")).text for _ in range(2)]
        await age_takings(team.rig, timedelta(minutes=1))
        later = (await page.get("/")).text
    versions = [re.findall(r'id="list" data-version="([^"]*)"', each) for each in (first, again, later)]
    assert versions[0] == versions[1] != versions[2]
