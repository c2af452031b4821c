"""Subscriptions over real HTTP: signed, tried again, given up and sent again; a specialist's to its actor's alone."""

import asyncio
import base64
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from desk_fixtures import catalog_of, pay_tool
from gateway_login import bearer, locked_desk, token_of
from gateway_rig import GatewayRig, gateway_rig
from sqlalchemy import text
from temporalio.client import Client

from signoff.audit.event_deliveries import EventDeliveries, is_for
from signoff.channels.standard_webhooks import verify_id
from signoff.contracts.audit import CloudEvent
from signoff.contracts.person import Person
from signoff.gateway.vendors.event_sender import RETRY_SECONDS, EventSender
from signoff.registry.manifest.subscription_sections import Subscription
from signoff.store.store import Store

KEY = b"k" * 32
PEOPLE = (Person(id="olga", roles=("auditor",)), Person(id="root", roles=("admin",)), Person(id="guest"))


@dataclass
class Receiver:
    """A server that takes what is posted, and answers what it is told to."""

    port: int = 0
    answers: list[int] = field(default_factory=list)
    """The statuses of the next answers; 200 after them."""
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        body = await reader.readexactly(int(headers["content-length"]))
        self.requests.append((headers, body))
        status = self.answers.pop(0) if self.answers else 200
        writer.write(f"HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    @property
    def events(self) -> list[dict[str, Any]]:
        """What was posted, if it was signed."""
        for headers, body in self.requests:
            verify_id([KEY], headers, body, datetime.now(UTC))
        return [json.loads(body) for _, body in self.requests]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver on a port of its own."""
    found = Receiver()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    async with server:
        found.port = server.sockets[0].getsockname()[1]
        yield found


@pytest.fixture
async def desk(
    client: Client, store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[GatewayRig]:
    """A desk whose freezes are sent to the receiver; it has seen what was there before."""
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
        await EventSender(found.deps).step()
        yield found


async def froze(desk: GatewayRig, reason: str = "drill") -> None:
    """Two events: a freeze, and its end."""
    await desk.http.post("/v1/freezes?as=approver", json={"reason": reason})
    await desk.http.request("DELETE", "/v1/freezes/main?as=approver", json={})


async def make_due(desk: GatewayRig) -> None:
    """The time of every next try is there."""
    change = text("UPDATE event_deliveries SET due_at = 0 WHERE state = 'new'")
    await desk.deps.store.run(lambda connection: connection.execute(change))


async def test_what_is_wanted_arrives_signed(desk: GatewayRig, receiver: Receiver) -> None:
    """Each event once, as a CloudEvent, and nothing else; what arrived is owed no more."""
    await froze(desk)
    sender = EventSender(desk.deps)
    assert [await sender.step(), await sender.step()] == [2, 0]
    kinds = sorted(each["type"] for each in receiver.events)
    assert kinds == ["freeze.lifted", "freeze.started"]
    (headers, body) = receiver.requests[0]
    assert headers["webhook-id"] == json.loads(body)["id"]
    assert headers["content-type"] == "application/cloudevents+json"
    assert (await desk.http.get(json.loads(body)["dataschema"])).json()["title"] == json.loads(body)["type"]


async def test_what_does_not_arrive_is_tried_again_under_the_same_id(desk: GatewayRig, receiver: Receiver) -> None:
    """Not before its time, and until it arrives."""
    receiver.answers = [500, 500, 410]
    await froze(desk)
    sender = EventSender(desk.deps)
    assert [await sender.step(), await sender.step()] == [2, 0]
    await make_due(desk)
    await sender.step()
    await make_due(desk)
    assert [await sender.step(), await sender.step()] == [1, 0]
    ids = [headers["webhook-id"] for headers, _ in receiver.requests]
    assert (len(ids), len(set(ids))) == (5, 2)


async def test_what_is_given_up_is_listed_and_sent_again(desk: GatewayRig, receiver: Receiver) -> None:
    """After the last try nothing is sent by itself; auditors read of it, and the role `admin` has it sent."""
    await froze(desk)
    receiver.answers = [500] * 2 * (len(RETRY_SECONDS) + 1)
    sender = EventSender(desk.deps)
    for _ in range(len(RETRY_SECONDS) + 1):
        assert await sender.step() == 2
        await make_due(desk)
    assert await sender.step() == 0
    locked = locked_desk(desk, people=PEOPLE)
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


async def test_several_gateways_share_the_work(desk: GatewayRig, receiver: Receiver) -> None:
    """Each event is added and sent by one of them."""
    await froze(desk)
    senders = [EventSender(desk.deps) for _ in range(3)]
    for _ in range(3):
        await asyncio.gather(*(sender.step() for sender in senders))
    assert len(receiver.events) == 2


async def test_without_its_secret_nothing_is_sent(
    desk: GatewayRig, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be signed waits."""
    monkeypatch.delenv("FEED_SECRET")
    await froze(desk)
    await EventSender(desk.deps).step()
    assert receiver.requests == []
    assert await EventDeliveries(desk.deps.store).claim(10) == []
    monkeypatch.setenv("FEED_SECRET", "whsec_" + base64.b64encode(KEY).decode())
    await make_due(desk)
    assert await EventSender(desk.deps).step() == 2
    assert len(receiver.events) == 2


def test_a_specialist_is_told_to_its_own_actors_subscription() -> None:
    """And only where the event itself says whose call it was, and somebody else than the turn vouches for it."""
    wanted = Subscription("feed", ("*",), "https://a.example", "env:A", actor="desk")
    own: dict[str, Any] = {"id": "i", "time": "t", "private": True}
    dispatched = CloudEvent(source="actor:desk", type="tool_call:vault", **own)
    executed = CloudEvent(source="turn:t", type="tool_call.executed", data={"actor": "desk"}, **own)
    asked = CloudEvent(source="turn:t", type="approval.requested", **own)
    assert [is_for(wanted, each) for each in (dispatched, executed, asked)] == [True, True, False]
    assert not is_for(wanted, dispatched.model_copy(update={"claimed": True}))
    for other in (Subscription("feed", ("*",), "https://a.example", "env:A", actor=name) for name in ("", "clerk")):
        assert not any(is_for(other, each) for each in (dispatched, executed, asked))
        assert is_for(other, asked.model_copy(update={"private": False}))
    assert not is_for(Subscription("feed", ("grant.*",), "https://a.example", "env:A", actor="desk"), dispatched)
