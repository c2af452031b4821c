"""What a turn could not write down is made good: nobody is forgotten, and no card asks for ever."""

import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from gateway_desk import GatewayDesk, gateway_desk
from sqlalchemy import delete, func, select
from temporalio.client import Client
from test_channel_doors import channel_catalog

from signoff.channels.carrying import Supplies
from signoff.channels.courier import Courier
from signoff.client import Signoff
from signoff.contracts.approval import ApprovalRequest, Vote
from signoff.contracts.audit import AuditEntry
from signoff.contracts.decision import Decision
from signoff.contracts.ids import parse_approval_id
from signoff.gateway import lost_notices
from signoff.gateway.lost_notices import LOOKED_BACK, LostNotices
from signoff.registry.manifest_channels import RoutingRules
from signoff.store.deliveries import Deliveries, DeliveryRow, NewDelivery
from signoff.store.notices import Notices
from signoff.store.schema import NOTICES
from signoff.store.store import Store
from signoff.testing.recording_channel import RecordingChannel, recording_channel


class Looking:
    """A courier and a look for what was lost, by a clock that is ahead, and a turn whose notices can be lost."""

    def __init__(self, desk: GatewayDesk) -> None:
        self.desk = desk
        self.ahead = timedelta(minutes=2)
        deps = dataclasses.replace(desk.deps, clock=self.now)
        self.channel: RecordingChannel = recording_channel("chat")
        self.cards = Deliveries(deps.store)
        supplies = Supplies(
            deliveries=self.cards,
            people=deps.people,
            links=self._link,
            record=self._record,
            clock=lambda: datetime.now(UTC),
            digest_over=50,
        )
        self.courier = Courier(Notices(deps.store), {"chat": self.channel}, RoutingRules(), supplies)
        self.lost = LostNotices(deps, self.courier)

    def now(self) -> datetime:
        """The time, as it is told."""
        return datetime.now(UTC) + self.ahead

    async def lose(self) -> int:
        """Lose every notice that a turn writes; how many it was, which is waited for."""
        async with asyncio.timeout(30):
            while True:
                gone = await self.desk.deps.store.run(lambda connection: connection.execute(delete(NOTICES)).rowcount)
                if gone:
                    return gone
                await asyncio.sleep(0.05)

    async def found(self, amiss: bool) -> None:
        """Look until something is amiss, or nothing is."""
        async with asyncio.timeout(30):
            while bool(await self.lost.step()) != amiss:
                await asyncio.sleep(0.1)

    async def carry(self) -> None:
        """Carry all there is."""
        while await self.courier.step():
            pass

    async def _link(self, row: DeliveryRow) -> str:
        return "http://127.0.0.1/"

    async def _record(self, entry: AuditEntry) -> None:
        return None


@pytest.fixture
async def looking(client: Client, store: Store) -> AsyncIterator[Looking]:
    """Over a running worker of its own."""
    queue = f"lost-{uuid.uuid4().hex[:12]}"
    async with gateway_desk(client, store, queue, catalog_of_ledger=channel_catalog) as desk:
        yield Looking(desk)


@pytest.mark.usefixtures("nothing_waits")
async def test_a_request_that_nobody_was_told_of_is_told(looking: Looking) -> None:
    """Once it has waited for a while, and once."""
    approval = await looking.desk.asked("pay")
    await looking.lose()
    looking.ahead = timedelta()
    assert await looking.lost.step() == 0
    looking.ahead = timedelta(minutes=2)
    await looking.found(amiss=True)
    await looking.carry()
    assert {notice.request.id for notice, _ in looking.channel.cards} == {approval}
    told = len(looking.channel.cards)
    assert await looking.lost.step() == 0
    await looking.carry()
    assert len(looking.channel.cards) == told


@pytest.mark.usefixtures("nothing_waits")
async def test_the_cards_of_a_request_that_is_over_are_closed(looking: Looking) -> None:
    """As it ended, though its turn could not write that down; a request that waits keeps its cards."""
    approval, other = await looking.desk.asked("pay"), await looking.desk.asked("pay")
    async with asyncio.timeout(30):
        while not (await looking.cards.of_request(approval) and await looking.cards.of_request(other)):
            await looking.courier.step()
            await asyncio.sleep(0.05)
    await looking.carry()
    await looking.found(amiss=False)
    await looking.lose()
    decided = await looking.desk.decide(approval, verdict="denied", revision=1)
    assert decided.json()["status"] == "accepted"
    await looking.lose()
    await looking.found(amiss=True)
    await looking.carry()
    closed = {(each.request.id, each.request.state, each.request.decided_by) for _, each in looking.channel.closings}
    assert closed == {(approval, "denied", "approver")}
    assert all(row.ended_at is None for row in await looking.cards.of_request(other))


async def told(looking: Looking) -> tuple[str, str]:
    """Two requests whose cards are out, the first the older one."""
    asked: list[str] = []
    for _ in range(2):
        asked.append(await looking.desk.asked("pay"))
        async with asyncio.timeout(30):
            while not await looking.cards.of_request(asked[-1]):
                await looking.courier.step()
                await asyncio.sleep(0.05)
        await looking.carry()
    return asked[0], asked[1]


@pytest.mark.usefixtures("nothing_waits")
async def test_the_cards_of_a_turn_that_was_terminated_are_closed(
    looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing decides it any more, though its history still says that it waits; what waits hides it from nobody."""
    monkeypatch.setattr(lost_notices, "PAGE", 1)
    waits, approval = await told(looking)
    key = parse_approval_id(approval)
    assert key is not None
    await looking.found(amiss=False)
    await looking.desk.deps.desk.temporal.get_workflow_handle(key.turn.workflow_id).terminate("ended by operations")
    await looking.found(amiss=True)
    await looking.carry()
    assert {(each.request.id, each.request.state) for _, each in looking.channel.closings} == {(approval, "cancelled")}
    assert all(row.ended_at is None for row in await looking.cards.of_request(waits))


@pytest.mark.usefixtures("nothing_waits")
async def test_the_cards_of_a_turn_that_is_gone_are_closed_once_its_time_is_over(looking: Looking) -> None:
    """Before that nobody knows: the server may be another one."""
    approval, _ = await told(looking)
    request = await looking.desk.deps.desk.request(approval)
    gone = request.model_copy(update={"id": approval.replace(request.turn, "gone"), "turn": "gone"})
    await looking.cards.plan([NewDelivery(request=gone, person="approver", channel="chat", address="a")])
    await looking.carry()
    assert await looking.lost.step() == 0
    looking.ahead = timedelta(seconds=request.timeout) + timedelta(days=1)
    assert await looking.lost.step() > 0
    await looking.carry()
    assert [each.request.state for _, each in looking.channel.closings] == ["cancelled"]


@pytest.mark.usefixtures("nothing_waits")
async def test_what_is_long_over_is_forgotten(looking: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notices that were read, and cards that say that they are over."""
    approval, _ = await told(looking)
    request = await looking.desk.deps.desk.request(approval)
    await looking.cards.end(approval, 1, request.model_copy(update={"state": "cancelled"}))
    await looking.carry()
    await looking.lost.step()
    assert await looking.cards.of_request(approval)
    monkeypatch.setattr(lost_notices, "NOTICES_KEPT", timedelta(seconds=-1))
    monkeypatch.setattr(lost_notices, "CARDS_KEPT", timedelta(seconds=-1))
    await looking.lost.step()
    assert await looking.cards.of_request(approval)
    looking.ahead += timedelta(hours=1)
    await looking.lost.step()
    assert await looking.cards.of_request(approval) == []
    notices = select(func.count()).select_from(NOTICES).where(NOTICES.c.done_at.is_not(None))
    assert await looking.desk.deps.store.run(lambda connection: connection.scalar(notices)) == 0


class Voted(Signoff):
    """A turn in which one of two has answered."""

    async def request(self, approval_id: str) -> ApprovalRequest:
        """See `Signoff`."""
        request = await super().request(approval_id)
        decision = Decision(approval_id=approval_id, verdict="approved")
        vote = Vote(subject="approver", verdict="approved", at=datetime.now(UTC), decision=decision)
        return request.model_copy(update={"quorum": 2, "votes": (vote,)})


@pytest.mark.usefixtures("nothing_waits")
async def test_whoever_has_voted_is_not_told_on_the_next_channel(looking: Looking) -> None:
    """No turn writes a vote down that does not decide; those who have not voted are told there."""
    approval, _ = await told(looking)
    deps = dataclasses.replace(
        looking.desk.deps, clock=looking.now, desk=Voted(looking.desk.deps.desk.temporal, task_queue="any")
    )
    request = (await looking.desk.deps.desk.request(approval)).model_copy(update={"quorum": 2})
    later = datetime.now(UTC) + timedelta(minutes=15)
    people = ("approver", "other")
    cards = [NewDelivery(request=request, person=each, channel="mail", address="a", due_at=later) for each in people]
    await looking.cards.plan(cards)
    lost, rows = LostNotices(deps, looking.courier), dict[tuple[str, str], str]()
    async with asyncio.timeout(30):
        while rows.get(("approver", "mail")) != "dropped":
            await lost.step()
            rows = {(row.person, row.channel): row.state for row in await looking.cards.of_request(approval)}
    assert rows["other", "mail"] == "planned"
    assert rows["approver", "chat"] == "sent"


class Counting(Signoff):
    """Counts how often a turn is asked for its requests."""

    asked = 0

    async def request(self, approval_id: str) -> ApprovalRequest:
        """See `Signoff`."""
        self.asked += 1
        return await super().request(approval_id)


@pytest.mark.usefixtures("nothing_waits")
async def test_what_waited_long_without_a_card_is_asked_about_once(
    client: Client, store: Store, task_queue: str
) -> None:
    """Not every request has a channel, and each look would ask its turn."""
    async with gateway_desk(client, store, task_queue) as desk:
        looking = Looking(desk)
        counting = Counting(client, task_queue=task_queue)
        looking.lost = LostNotices(dataclasses.replace(desk.deps, clock=looking.now, desk=counting), looking.courier)
        await desk.asked("pay")
        async with asyncio.timeout(30):
            while not counting.asked:
                assert await looking.lost.step() == 0
        assert await looking.lost.step() == 0
        assert counting.asked == 2
        looking.ahead = LOOKED_BACK + timedelta(minutes=5)
        assert await looking.lost.step() == 0
        assert counting.asked == 2
        assert looking.channel.cards == []
