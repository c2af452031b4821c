import asyncio
import base64
import dataclasses
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from gateway_login import bearer, locked_rig, token_of
from gateway_rig import GatewayRig, gateway_rig
from sqlalchemy import text
from temporalio.client import Client
from turn_fixtures import catalog_of, pay_tool
from webhook_receiver import KEY, Receiver, running_receiver

from signoff.audit.event_deliveries import EventDeliveries, is_for
from signoff.contracts.audit import CloudEvent
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.gateway.events.event_sender import RETRY_SECONDS, EventSender, send_events
from signoff.gateway.events.event_task import keep_events
from signoff.registry.manifest.subscription_sections import Subscription
from signoff.settings import Settings
from signoff.store.store import Store

PEOPLE = (Person(id="olga", roles=("auditor",)), Person(id="root", roles=("admin",)), Person(id="guest"))


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with running_receiver() as found:
        yield found


@pytest.fixture
async def rig(
    client: Client, store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[GatewayRig]:
    """It has already seen older events."""
    monkeypatch.setenv("FEED_SECRET", "whsec_" + base64.b64encode(KEY).decode())
    feed = Subscription(
        name="feed",
        events=("freeze.*",),
        url=f"http://127.0.0.1:{receiver.port}/events",
        secret="env:FEED_SECRET",
        allow_networks=("127.0.0.0/8",),
    )

    async with gateway_rig(
        client,
        store,
        f"sender-{uuid.uuid4().hex[:12]}",
        catalog_of_ledger=lambda ledger: catalog_of([pay_tool(ledger)], subscriptions=[feed]),
    ) as found:
        await sender_of(found).step()
        yield found


def sender_of(rig: GatewayRig, **changes: Any) -> EventSender:
    return EventSender(rig.deps, dataclasses.replace(rig.deps.catalog.subscriptions["feed"], **changes))


async def froze(rig: GatewayRig, reason: str = "drill") -> None:
    await rig.http.post("/v1/freezes?as=approver", json={"reason": reason})
    await rig.http.request("DELETE", "/v1/freezes/main?as=approver", json={})


async def make_due(rig: GatewayRig) -> None:
    change = text("UPDATE event_deliveries SET due_at = 0 WHERE state = 'new'")
    await rig.deps.store.run(lambda connection: connection.execute(change))


async def test_subscribed_events_arrive_signed(rig: GatewayRig, receiver: Receiver) -> None:
    await froze(rig)
    sender = sender_of(rig)
    assert [await sender.step(), await sender.step()] == [2, 0]
    kinds = sorted(each["type"] for each in receiver.events)
    assert kinds == ["freeze.lifted", "freeze.started"]
    (headers, body) = receiver.requests[0]
    assert headers["webhook-id"] == json.loads(body)["id"]
    assert headers["content-type"] == "application/cloudevents+json"
    assert (await rig.http.get(json.loads(body)["dataschema"])).json()["title"] == json.loads(body)["type"]


async def test_undelivered_event_is_retried_under_the_same_id(rig: GatewayRig, receiver: Receiver) -> None:
    receiver.answers = [500, 500, 410]
    await froze(rig)
    sender = sender_of(rig)
    assert [await sender.step(), await sender.step()] == [2, 0]
    await make_due(rig)
    await sender.step()
    await make_due(rig)
    assert [await sender.step(), await sender.step()] == [1, 0]
    ids = [headers["webhook-id"] for headers, _ in receiver.requests]
    assert (len(ids), len(set(ids))) == (5, 2)


async def test_given_up_event_is_listed_and_retried_by_an_operator(rig: GatewayRig, receiver: Receiver) -> None:
    await froze(rig)
    receiver.answers = [500] * 2 * (len(RETRY_SECONDS) + 1)
    sender = sender_of(rig)
    for _ in range(len(RETRY_SECONDS) + 1):
        assert await sender.step() == 2
        await make_due(rig)
    assert await sender.step() == 0
    locked = locked_rig(rig, people=PEOPLE)
    headers = {each.id: bearer(await token_of(locked, each.id)) for each in PEOPLE}
    listed = (await locked.http.get("/v1/events/failed", headers=headers["olga"])).json()["failed"]
    assert [(each["subscription"], each["code"], each["event"]["type"]) for each in listed] == [
        ("feed", "500", "freeze.started"),
        ("feed", "500", "freeze.lifted"),
    ]
    assert (await locked.http.get("/v1/events/failed", headers=headers["guest"])).status_code == 403
    again = "/v1/events/failed/retry"
    assert (await locked.http.post(again, json={}, headers=headers["olga"])).status_code == 403
    none = await locked.http.post(again, json={}, params={"subscription": "other"}, headers=headers["root"])
    assert none.json() == {"retried": 0}
    assert (await locked.http.post(again, json={}, headers=headers["root"])).json() == {"retried": 2}
    assert [await sender.step(), await sender.step()] == [2, 0]
    assert (await locked.http.get("/v1/events/failed", headers=headers["olga"])).json() == {"failed": []}


async def test_several_gateways_share_the_deliveries(rig: GatewayRig, receiver: Receiver) -> None:
    await froze(rig)
    senders = [sender_of(rig) for _ in range(3)]
    for _ in range(3):
        await asyncio.gather(*(sender.step() for sender in senders))
    assert len(receiver.events) == 2


async def test_missing_secret_postpones_the_delivery(
    rig: GatewayRig, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FEED_SECRET")
    await froze(rig)
    await sender_of(rig).step()
    assert receiver.requests == []
    feed = rig.deps.catalog.subscriptions["feed"]
    assert await EventDeliveries(rig.deps.store).claim(feed, 10) == []
    monkeypatch.setenv("FEED_SECRET", "whsec_" + base64.b64encode(KEY).decode())
    await make_due(rig)
    assert await sender_of(rig).step() == 2
    assert len(receiver.events) == 2


async def owe(rig: GatewayRig) -> None:
    await froze(rig)
    await rig.deps.events.extend()
    assert await EventDeliveries(rig.deps.store).add(rig.deps.catalog.subscriptions["feed"]) == 2


async def test_queued_event_is_not_sent_to_another_tenants_subscription(rig: GatewayRig, receiver: Receiver) -> None:
    await owe(rig)
    assert await sender_of(rig, tenant="other").step() == 0
    assert receiver.requests == []
    assert await sender_of(rig).step() == 2


async def test_event_removed_from_a_subscription_is_not_sent(rig: GatewayRig, receiver: Receiver) -> None:
    await owe(rig)
    await sender_of(rig, events=("freeze.lifted",)).step()
    assert [each["type"] for each in receiver.events] == ["freeze.lifted"]
    [left] = await EventDeliveries(rig.deps.store).list_given_up("main")
    assert (left.event.type, left.code) == ("freeze.started", "not wanted")


async def test_gateway_ignores_deliveries_of_undeclared_subscriptions(rig: GatewayRig, receiver: Receiver) -> None:
    await owe(rig)
    assert await sender_of(rig, name="older").step() == 0
    assert await EventDeliveries(rig.deps.store).list_given_up("main") == []
    assert await sender_of(rig).step() == 2


async def test_invalid_address_does_not_end_the_sender(rig: GatewayRig, receiver: Receiver) -> None:
    await owe(rig)
    assert await sender_of(rig, url="http://a..b/events").step() == 2
    await make_due(rig)
    assert await sender_of(rig).step() == 2


async def test_silent_subscriber_delays_no_other(rig: GatewayRig, receiver: Receiver) -> None:
    ended = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1_000):
            pass
        ended.set()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    feed = rig.deps.catalog.subscriptions["feed"]
    slow = dataclasses.replace(feed, name="slow", url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    catalog = dataclasses.replace(rig.deps.catalog, subscriptions={"slow": slow, "feed": feed})
    async with server, send_events(dataclasses.replace(rig.deps, catalog=catalog)):
        for count in (2, 4):
            await froze(rig)
            while len(receiver.requests) < count:
                await asyncio.sleep(0.05)
        # The other subscriber was still waiting for its answer.
        assert not ended.is_set()


async def test_given_up_event_is_removed_after_its_retention(rig: GatewayRig) -> None:
    await owe(rig)
    deliveries = EventDeliveries(rig.deps.store)
    assert await deliveries.remove_old(30) == 0
    change = text("UPDATE event_deliveries SET due_at = 1")
    await rig.deps.store.run(lambda connection: connection.execute(change))
    left = text("SELECT count(*) FROM event_deliveries")
    async with keep_events(rig.deps.events, deliveries, 30):
        while await rig.deps.store.run(lambda connection: connection.scalar(left)):
            await asyncio.sleep(0.05)
    assert await sender_of(rig).step() == 0


def test_private_event_goes_only_to_its_own_actors_subscription() -> None:
    wanted = Subscription("feed", ("*",), "https://a.example", "env:A", actor="desk")
    own: dict[str, Any] = {"id": "i", "time": "t", "private": True}
    dispatched = CloudEvent(source="actor:desk", type="tool_call:vault", actor="desk", **own)
    asked = CloudEvent(source="turn:t", type="approval.requested", actor="desk", **own)
    nobodys = CloudEvent(source="turn:t", type="approval.decided", data={"actor": "desk"}, **own)
    assert [is_for(wanted, each) for each in (dispatched, asked, nobodys)] == [True, True, False]
    for other in (Subscription("feed", ("*",), "https://a.example", "env:A", actor=name) for name in ("", "clerk")):
        assert not any(is_for(other, each) for each in (dispatched, asked, nobodys))
        assert is_for(other, replace(asked, private=False))
    assert not is_for(Subscription("feed", ("grant.*",), "https://a.example", "env:A", actor="desk"), dispatched)


async def test_deliveries_of_a_tenant_stop_at_its_limit(rig: GatewayRig, receiver: Receiver) -> None:
    limited = dataclasses.replace(
        rig.deps, settings=Settings(tenant_limits="deliveries=3/hour; acme: deliveries=1/day")
    )
    sender = EventSender(limited, limited.catalog.subscriptions["feed"])
    for reason in ("one", "two"):
        await froze(rig, reason)
    assert [await sender.step() for _ in range(3)] == [3, 0, 0]
    earlier = text("UPDATE counted_acts SET at = at - 3600000")
    await rig.deps.store.run(lambda connection: connection.execute(earlier))
    assert [await sender.step() for _ in range(2)] == [1, 0]
    assert [event["type"] for event in receiver.events] == ["freeze.started", "freeze.lifted"] * 2
