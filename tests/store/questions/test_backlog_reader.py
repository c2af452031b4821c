import asyncio
from itertools import count
from typing import Any
from unittest.mock import AsyncMock

import pytest
from question_kit import put, question, take
from sqlalchemy import insert, update

from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.frozen_model import FrozenModel
from signoff.store.freezes import Freezes
from signoff.store.gauges.backlog_reader import BacklogReader
from signoff.store.gauges.backlog_readings import RENEW_SECONDS, BacklogReadings
from signoff.store.inbound_queue import InboundQueue
from signoff.store.leases import LEASE_SECONDS
from signoff.store.store import Store, open_store
from signoff.store.tables import DELIVERIES, EVENT_DELIVERIES, QUESTIONS, READINGS, StoreClock
from signoff.telemetry.metric_table import AGES

HOUR = 3_600_000


class Message(FrozenModel):
    key: str

    @property
    def author(self) -> str:
        return "ana"


@pytest.mark.parametrize("piece", [1, 2, 50])
async def test_waiting_requests_are_counted_by_tenant_and_age(
    store: Store, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr("signoff.store.gauges.backlog_reader.PIECE", piece)
    await put(store)
    for number in (2, 3, 4):
        await put(store, question(f"main.s.t.c{number}.1", call=f"c{number}.1"))
    await put(store, question("acme.s.t.c1.1", tenant="acme"))
    assert await take(store, "ana", approval="main.s.t.c3.1")

    def change(approval: str, **values: Any) -> Any:
        return update(QUESTIONS).where(QUESTIONS.c.approval == approval).values(**values)

    await store.run(
        lambda connection: [
            connection.execute(each)
            for each in (
                change("main.s.t.c2.1", opened_at=QUESTIONS.c.opened_at - 2 * HOUR),
                change("main.s.t.c4.1", last_at=QUESTIONS.c.opened_at - 1),
                change("acme.s.t.c1.1", opened_at=QUESTIONS.c.opened_at - 1_000 * HOUR),
            )
        ]
    )
    found = (await BacklogReader(store).read()).requests
    assert {tenant: each.requests for tenant, each in found.items()} == {"main": 2, "acme": 1}
    assert 7_200 <= found["main"].oldest_seconds < 14_400
    assert 7_200 <= found["main"].total_seconds < 14_400
    assert found["main"].by_age == tuple({60.0: 1, 14_400.0: 1}.get(bound, 0) for bound in (*AGES, None))
    assert found["acme"].by_age == (*(0 for _ in AGES), 1)


async def test_every_queue_reports_its_depth_and_oldest_entry(store: Store) -> None:
    empty = await BacklogReader(store).read()
    assert {each.entries for each in empty.queues.values()} == {0}
    assert (empty.requests, empty.frozen) == ({}, 0)
    await InboundQueue(store).put("mail", [Message(key="k")], [])
    await Freezes(store).freeze("acme", reason="a test", by="ana")
    ago = StoreClock() - HOUR
    card = dict.fromkeys(("approval", "person", "channel", "address", "vendor_id", "handle", "code", "message"), "x")
    card |= {"tenant": "main", "kind": "ask", "request": "{}", "revision": 1, "claimed_until": 0}
    cards = [
        {**card, "token": "due", "person": "a", "state": "planned", "attempts": 0, "due_at": ago},
        {**card, "token": "later", "person": "b", "state": "planned", "attempts": 0, "due_at": StoreClock() + HOUR},
        {
            **card, "token": "tried", "person": "c", "state": "planned", "attempts": 3, "created_at": ago - HOUR,
            "due_at": StoreClock() + HOUR,
        },
        {**card, "token": "over", "person": "d", "state": "sent", "attempts": 0, "ended_at": ago},
        {**card, "token": "out", "person": "e", "state": "sent", "attempts": 0},
    ]  # fmt: skip
    event = {"subscription": "feed", "tenant": "main", "number": 1, "body": "{}", "code": "", "attempts": 0}
    events = [
        {**event, "key": "new", "state": "new", "claimed_until": 0, "created_at": ago},
        {**event, "key": "dead", "state": "dead", "claimed_until": 0},
    ]
    for table, rows in ((DELIVERIES, cards), (EVENT_DELIVERIES, events)):
        for row in rows:
            await store.run(
                lambda connection, table=table, row=row: connection.execute(insert(table).values(row)).close()
            )
    found = await BacklogReader(store).read()
    assert {name: each.entries for name, each in found.queues.items()} == {
        "cards": 2, "card_endings": 1, "arrivals": 1, "answers": 0, "events": 1, "dead_events": 1,
    }  # fmt: skip
    assert 7_200 <= found.queues["cards"].oldest_seconds < 14_400
    assert 3_600 <= found.queues["events"].oldest_seconds < 7_200
    assert found.queues["answers"].oldest_seconds == 0
    assert found.frozen == 1


async def pass_seconds(store: Store, seconds: float) -> None:
    earlier = update(READINGS).values(renew_at=READINGS.c.renew_at - round(seconds * 1000))
    await store.run(lambda connection: connection.execute(earlier).close())


async def test_gateways_share_one_measurement(store_url: str) -> None:
    async with open_store(store_url) as one, open_store(store_url) as other:
        # A slow measurement extends the pause after it.
        gateways = [BacklogReadings(each, clock=lambda: 0.0) for each in (one, other)]
        assert [await each.last() for each in gateways] == [None, None]
        assert sorted(await asyncio.gather(*(each.renew() for each in gateways))) == [False, True]
        await put(one)
        shown = [await each.last() for each in gateways]
        assert [each is not None and dict(each.backlog.requests) for each in shown] == [{}, {}]
        await pass_seconds(one, RENEW_SECONDS - 5)
        assert [await each.renew() for each in gateways] == [False, False]
        await pass_seconds(one, 6)
        assert [await each.renew() for each in gateways] == [True, False]
        again = await gateways[1].last()
        assert again is not None
        assert again.backlog.requests["main"].requests == 1
        assert 0 <= again.age < 60


async def test_measurement_of_a_lost_gateway_is_taken_over_after_its_lease(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = BacklogReadings(store)
    with monkeypatch.context() as patch:
        patch.setattr(BacklogReader, "read", AsyncMock(side_effect=StoreUnavailable("lost")))
        with pytest.raises(StoreUnavailable):
            await readings.renew()
    assert not await readings.renew()
    assert await readings.last() is None
    await pass_seconds(store, LEASE_SECONDS)
    assert await readings.renew()


async def test_long_measurement_is_repeated_less_often(store: Store) -> None:
    moments = count(step=10.0)
    readings = BacklogReadings(store, lambda: next(moments))
    assert await readings.renew()
    await pass_seconds(store, 150)
    assert not await readings.renew()
    await pass_seconds(store, 60)
    assert await readings.renew()
