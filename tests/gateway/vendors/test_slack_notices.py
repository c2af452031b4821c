import dataclasses
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest
from gateway_rig import BASE, MONEY, PEOPLE, GatewayRig, gateway_rig, http_of, turn_of
from polling import until
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.approvals.notifications import Notice
from signoff.audit.event_sources import EventSources
from signoff.channels.channel_loader import open_channels
from signoff.channels.outbound.notice_planner import SOURCE
from signoff.contracts.approval import ApprovalRequest
from signoff.formats.replace import replace
from signoff.gateway.app import build_app
from signoff.gateway.vendors.channel_tasks import run_channels
from signoff.keys.secrets import SecretProvider
from signoff.people.directory import development_directory
from signoff.plugins.loader import Plugins
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog
from signoff.registry.manifest.channel_sections import Channels, DeclaredChannel, RoutingRules
from signoff.registry.tool_result import ToolFailure
from signoff.store.messages.notices import Notices
from signoff.store.store import open_store
from signoff.testing.fake_slack import FakeSlack, fake_slack

RULES = RoutingRules(default=("chat",))
ANA, WATCHER, GUEST, _ = FakeSlack.identities
SECONDS = 2.0


def told_catalog(ledger: Ledger) -> Catalog:
    async def fail(args: object, context: object) -> ToolFailure:
        return ToolFailure("the bank is closed")

    tell = {"requester": ("waiting", "decided", "ran"), "user:approver": ("ran",)}
    money = {"input_schema": MONEY, "effect": "Pay {amount} {currency} to {to}", "title": "Pay", "tell": tell}
    two = ApprovalPolicy(approvers=("role:approvers",), quorum=2)
    tools = [
        pay_tool(ledger, **money),
        pay_tool(ledger, two, name="both", **money),
        pay_tool(ledger, name="fail", handler=fail, **money),
    ]
    known = {"guest": GUEST, "ana": ANA, "approver": WATCHER}
    people = [
        replace(each, locale="en", identities={"slack": (known.get(each.id, f"T1:U{each.id}"),)}) for each in PEOPLE
    ]
    channels = Channels({"chat": DeclaredChannel("chat", "slack")}, RULES)
    actors = [Actor(name="desk", model="scripted", description="Pays.")]
    catalog = catalog_of(tools, actors=actors, people=PEOPLE)
    return dataclasses.replace(catalog, people=development_directory(people), channels=channels)


@dataclass
class Room:
    rig: GatewayRig
    vendor: FakeSlack
    http: httpx2.AsyncClient | None = None

    async def asked(self, words: str) -> ApprovalRequest:
        return await self.rig.turns.signoff.request(await self.rig.asked(words))

    async def decide(self, request: ApprovalRequest, **fields: object) -> None:
        given = {"verdict": "approved", "revision": 1, "question_hash": request.question_hash, "as": "ana"}
        answer = await self.rig.decide(request.id, **given | fields)
        assert answer.status_code == 200, answer.text

    def notices(self, to: str, first: str) -> list[str]:
        return [each for each in self.vendor.reads(to) if each.startswith(first)]

    def ends(self, to: str, words: str) -> bool:
        return any(words in each for each in self.vendor.reads(to))

    async def wait(self, to: str, first: str, number: int = 1) -> str:
        await until(lambda: len(self.notices(to, first)) >= number)
        return self.notices(to, first)[-1]


@pytest.fixture
async def room(client: Client, tmp_path: Path) -> AsyncIterator[Room]:
    async with (
        fake_slack() as vendor,
        open_store(f"sqlite:///{tmp_path}/signoff.db") as store,
        gateway_rig(client, store, f"room-{uuid.uuid4().hex[:12]}", catalog_of_ledger=told_catalog) as rig,
    ):
        vendor.clock = lambda: datetime.now(UTC)
        yield Room(rig, vendor)


@asynccontextmanager
async def gateway(room: Room) -> AsyncIterator[None]:
    opened, problems = await open_channels(
        [DeclaredChannel("chat", "slack", room.vendor.options)],
        room.rig.deps.store,
        public_url=BASE,
        clock=room.vendor.clock,
        secrets=SecretProvider(environment=room.vendor.environment),
        plugins=Plugins(),
    )
    assert problems == []
    async with (
        run_channels(room.rig.deps, opened, RULES) as receiver,
        http_of(build_app(room.rig.deps, receiver)) as room.http,
    ):
        yield


async def test_requester_gets_notices_of_waiting_decision_and_run(room: Room) -> None:
    async with gateway(room):
        request = await room.asked("pay")
        waiting = await room.wait(GUEST, "Waiting for approval.")
        assert request.card.effect in waiting
        assert waiting.endswith(f"{BASE}/approvals/{request.id}")
        await room.decide(request)
        await room.wait(GUEST, "Approved by Ana over the API")
        await room.wait(GUEST, "The approved call ran.")
        await room.wait(WATCHER, "The approved call ran.")
    assert len(room.vendor.reads(GUEST)) == 3
    assert len(room.notices(WATCHER, "The approved call")) == 1
    guest = [each for each in room.vendor.messages if each.user == GUEST.rpartition(":")[2]]
    assert [each.blocks for each in guest] == [[], [], []]


async def test_notice_of_a_denial_has_its_reason_and_no_run_follows(room: Room) -> None:
    async with gateway(room):
        request = await room.asked("pay")
        await room.decide(request, verdict="denied", reason="too much")
        assert "Reason: too much" in await room.wait(GUEST, "Denied by Ana")
    assert await Notices(room.rig.deps.store).list_finished() == []
    assert room.notices(GUEST, "The approved call") == []


async def test_failed_run_sends_a_notice_of_failure(room: Room) -> None:
    async with gateway(room):
        request = await room.asked("fail")
        await room.decide(request)
        await room.wait(GUEST, "The approved call failed.")
    assert room.notices(GUEST, "The approved call ran.") == []


async def test_decision_without_a_channel_gateway_has_one_notice_later(room: Room) -> None:
    """The turn has ended, and each planner starts with the same events."""
    request = await room.asked("pay")
    await _follow_from_now(room)
    await room.decide(request)
    await until(lambda: len(room.rig.ledger.rows) == 1)
    await room.rig.turns.until(turn_of(request.id), lambda view: view.result is not None)
    for _ in range(2):
        async with gateway(room):
            await room.wait(GUEST, "Approved by Ana")
            await room.wait(GUEST, "The approved call ran.")
    assert len(room.vendor.reads(GUEST)) == 2


async def test_second_approval_reaches_all_cards_and_the_requester_within_two_seconds(room: Room) -> None:
    async with gateway(room):
        request = await room.asked("both")
        await until(lambda: len(room.vendor.cards()) == 2)
        await room.decide(request)
        # Processor time of this process, which holds gateway, worker and vendor: other tests use the same cores.
        begun = time.process_time()
        await room.decide(request, **{"as": "approver"})
        await room.wait(GUEST, "Approved by Ana, Approver")
        await until(lambda: all(room.ends(to, "Approved by Ana, Approver") for to in (ANA, WATCHER)))
        took = time.process_time() - begun
    assert took < SECONDS


async def test_reply_to_a_notice_decides_nothing(room: Room) -> None:
    async with gateway(room):
        request = await room.asked("pay")
        await until(lambda: len(room.vendor.reads(ANA)) == 1)
        notice = Notice(kind="waiting", about=request.id, at=datetime.now(UTC), request=request)
        queue = Notices(room.rig.deps.store)
        write = await queue.open_writer(notice, "main", "ana")
        await room.rig.deps.store.run(lambda connection: write(connection))
        await room.wait(ANA, "Waiting for approval.")
        raw = room.vendor.reply_to_latest(ANA, "approve")
        assert room.http is not None
        answer = await room.http.post("/channels/chat", content=raw.body, headers=dict(raw.headers))
        assert answer.status_code == 200
        await until(lambda: len(room.vendor.reads(ANA)) == 3)
    assert (await room.rig.request(request.id)).votes == ()


async def test_new_passkey_sends_its_owner_a_notice(room: Room) -> None:
    store = room.rig.deps.store
    write = await Notices(store).open_writer(
        Notice(kind="passkey", about="main.p", at=datetime.now(UTC)), "main", "ana"
    )
    await store.run(lambda connection: write(connection))
    async with gateway(room):
        assert f"{BASE}/passkeys" in await room.wait(ANA, "A passkey was added to your account")
    assert await Notices(store).list_unrouted() == []


async def _follow_from_now(room: Room) -> None:
    await EventSources(room.rig.deps.store).read(SOURCE, datetime.now(UTC))
