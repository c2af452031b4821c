from datetime import UTC, datetime, timedelta

from some import some
from sqlalchemy import update

from signoff.store.delivery_queue import DeliveryQueue, DeliveryRow, NewDelivery, room_person
from signoff.store.store import Store
from signoff.store.tables import DELIVERIES
from signoff.testing import a_request

REQUEST = a_request()


def in_room(room: str = "C1") -> NewDelivery:
    return NewDelivery(request=REQUEST, person=room_person(room), channel="slack", address=room, kind="room")


async def posted(deliveries: DeliveryQueue) -> DeliveryRow:
    await deliveries.plan([in_room()])
    (row,) = await deliveries.claim_due(9, "slack")
    await deliveries.record_sent(row.token, "m1", {"ts": "1"}, kind="room")
    return await read(deliveries, row)


async def read(deliveries: DeliveryQueue, row: DeliveryRow) -> DeliveryRow:
    return some(await deliveries.by_token(row.token))


async def test_each_room_of_a_channel_gets_one_card(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    assert await deliveries.plan([in_room(), in_room("C2"), in_room()]) == 2
    rows = await deliveries.of_request(REQUEST.id)
    assert {(row.address, row.kind, row.state) for row in rows} == {
        ("C1", "room", "planned"),
        ("C2", "room", "planned"),
    }
    assert all(":" in row.person and len(row.person) <= 64 for row in rows)


async def test_change_makes_a_posted_card_due_once(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    row = await posted(deliveries)
    assert row.kind == "room"
    assert await deliveries.claim_due(9, "slack") == []
    assert await deliveries.redraw(REQUEST.id) == 1
    (drawn,) = await deliveries.claim_due(9, "slack")
    assert (drawn.token, drawn.handle) == (row.token, {"ts": "1"})
    await deliveries.record_drawn(drawn, None)
    assert (await read(deliveries, row)).remind_at is None
    assert await deliveries.claim_due(9, "slack") == []


async def test_change_during_a_drawing_is_drawn_as_well(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    row = await posted(deliveries)
    await deliveries.redraw(REQUEST.id)
    (first,) = await deliveries.claim_due(9, "slack")
    # By another millisecond of the store.
    earlier = update(DELIVERIES).values(remind_at=DELIVERIES.c.remind_at - 5)
    await store.run(lambda connection: connection.execute(earlier).close())
    first = await read(deliveries, first)
    await deliveries.redraw(REQUEST.id)
    await deliveries.record_drawn(first, None)
    (again,) = await deliveries.claim_due(9, "slack")
    assert again.token == row.token


async def test_change_while_a_card_is_first_sent_is_drawn_after_it(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    await deliveries.plan([in_room()])
    (row,) = await deliveries.claim_due(9, "slack")
    await deliveries.redraw(REQUEST.id)
    assert await deliveries.claim_due(9, "slack") == []
    await deliveries.record_sent(row.token, "m1", {"ts": "1"}, kind="room")
    await deliveries.record_drawn(row, None)
    (again,) = await deliveries.claim_due(9, "slack")
    assert again.state == "sent"


async def test_card_of_a_taken_request_is_due_at_the_lapse(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    row = await posted(deliveries)
    await deliveries.record_drawn(row, datetime.now(UTC) + timedelta(minutes=15))
    assert await deliveries.claim_due(9, "slack") == []
    await deliveries.record_drawn(await read(deliveries, row), datetime.now(UTC) - timedelta(seconds=1))
    assert [each.token for each in await deliveries.claim_due(9, "slack")] == [row.token]


async def test_ended_request_is_closed_instead_of_drawn(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    row = await posted(deliveries)
    await deliveries.end(REQUEST.id, 1, a_request(state="denied"))
    assert await deliveries.redraw(REQUEST.id) == 0
    assert await deliveries.claim_due(9, "slack") == []
    assert [each.token for each in await deliveries.claim_to_close(9, "slack")] == [row.token]


async def test_change_does_not_touch_personal_cards(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    await deliveries.plan([NewDelivery(request=REQUEST, person="bo", channel="slack", address="bo")])
    (row,) = await deliveries.claim_due(9, "slack")
    await deliveries.record_sent(row.token, "m1", {})
    assert await deliveries.redraw(REQUEST.id) == 0
    assert await deliveries.claim_due(9, "slack") == []


async def test_extended_deadline_is_drawn_in_rooms_alone(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    row = await posted(deliveries)
    await deliveries.renew(a_request(extended=True, escalated=True))
    (drawn,) = await deliveries.claim_due(9, "slack")
    assert (drawn.token, drawn.request.extended) == (row.token, True)
