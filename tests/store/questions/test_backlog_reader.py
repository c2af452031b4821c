from typing import Any

from question_kit import put, question, take
from sqlalchemy import insert, update

from signoff.contracts.frozen_model import FrozenModel
from signoff.store.freezes import Freezes
from signoff.store.gauges.backlog_reader import BacklogReader
from signoff.store.inbound_queue import InboundQueue
from signoff.store.store import Store
from signoff.store.tables import DELIVERIES, EVENT_DELIVERIES, QUESTIONS, StoreClock
from signoff.telemetry.metric_table import AGES

HOUR = 3_600_000


class Message(FrozenModel):
    key: str

    @property
    def author(self) -> str:
        return "ana"


async def test_waiting_requests_are_counted_by_tenant_and_age(store: Store) -> None:
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
