import asyncio
from datetime import UTC, datetime, timedelta

from some import some
from sqlalchemy import select

from signoff.approvals.request_thread import hash_thread
from signoff.contracts.approval import ApprovalRequest, RequestMessage
from signoff.formats.replace import replace
from signoff.store.delivery_queue import DeliveryQueue, NewDelivery, room_person
from signoff.store.store import Store
from signoff.store.tables import DELIVERIES
from signoff.testing import a_request

APPROVAL = a_request().id
ALL = {"bo", "cy"}


def told(answers: int = 1, *, asks: bool = False) -> ApprovalRequest:
    messages = [
        RequestMessage(number=number, by="agent" if number % 2 == 0 else "approver", text="words", revision=1)
        for number in range(1, 2 * answers + 1 + asks)
    ]
    return a_request(messages=tuple(messages), thread=hash_thread(messages))


def a_card(person: str = "bo", channel: str = "slack", request: ApprovalRequest | None = None) -> NewDelivery:
    return NewDelivery(request=request or a_request(), person=person, channel=channel, address=person)


async def sent(deliveries: DeliveryQueue, *cards: NewDelivery) -> dict[str, str]:
    await deliveries.plan(cards)
    tokens = {row.person: row.token for row in await deliveries.of_request(APPROVAL)}
    for person, token in tokens.items():
        await deliveries.record_sent(token, f"m-{person}", {"ts": "1"})
    return tokens


async def test_sent_card_is_replaced_at_once_and_closed(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    old = (await sent(deliveries, a_card()))["bo"]
    assert await deliveries.replace_old(told(), ALL) == 1
    assert await deliveries.replace_old(told(), ALL) == 0
    [new] = await deliveries.of_request(APPROVAL)
    assert (new.state, new.person, new.request.thread) == ("planned", "bo", told().thread)
    assert new.token != old
    assert [row.token for row in await deliveries.claim_to_close(9, "slack")] == [old]
    assert [row.token for row in await deliveries.claim_due(9, "slack")] == [new.token]
    kept = some(await deliveries.by_token(old))
    assert (kept.approval, kept.request.thread, kept.request.state) == (APPROVAL, "", "pending")
    assert [row.token for row in await deliveries.by_vendor("slack", ["m-bo"])] == [old]


async def test_question_alone_replaces_no_card(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    tokens = await sent(deliveries, a_card())
    assert await deliveries.replace_old(told(0, asks=True), ALL) == 0
    await deliveries.plan([a_card(request=told(0, asks=True))])
    assert [row.token for row in await deliveries.of_request(APPROVAL)] == list(tokens.values())


async def test_every_answer_makes_one_card(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    tokens = {(await sent(deliveries, a_card()))["bo"]}
    for number in (1, 2, 3):
        assert await deliveries.replace_old(told(number), ALL) == 1
        tokens |= {row.token for row in await deliveries.of_request(APPROVAL)}
    assert len(tokens) == 4
    names = await store.read(lambda connection: connection.scalars(select(DELIVERIES.c.approval)).all())
    assert sorted(names) == [APPROVAL, *(f"{APPROVAL}!{number}" for number in range(3))]


async def test_concurrent_dispatchers_replace_a_card_once(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    await sent(deliveries, a_card(), a_card("cy"))
    works = (deliveries.replace_old(told(), ALL), deliveries.replace_old(told(), ALL))
    assert sum(await asyncio.gather(*works)) == 2
    assert len(await deliveries.of_request(APPROVAL)) == 2


async def test_late_planner_adds_no_card_without_the_answer(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    await sent(deliveries, a_card())
    await deliveries.replace_old(told(), ALL)
    assert await deliveries.plan([a_card(), a_card("cy")]) == 1
    assert await deliveries.plan([a_card(request=told()), a_card("cy", request=told())]) == 0
    threads = {row.person: row.request.thread for row in await deliveries.of_request(APPROVAL)}
    assert threads == {"bo": told().thread, "cy": ""}
    assert await deliveries.replace_old(told(), ALL) == 1


async def test_sent_card_is_replaced_at_once_and_card_that_waits_keeps_its_time(store: Store) -> None:
    deliveries, later = DeliveryQueue(store), datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)
    await sent(deliveries, a_card())
    await deliveries.plan([NewDelivery(request=a_request(), person="cy", channel="slack", address="cy", due_at=later)])
    await deliveries.replace_old(told(), ALL)
    rows = {row.person: row for row in await deliveries.of_request(APPROVAL)}
    assert rows["cy"].due_at == later
    assert [row.person for row in await deliveries.claim_due(9, "slack")] == ["bo"]


async def test_card_of_a_person_who_is_not_asked_stays(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    tokens = await sent(deliveries, a_card(), a_card("cy"))
    assert await deliveries.replace_old(told(), {"bo"}) == 1
    rows = {row.person: row for row in await deliveries.of_request(APPROVAL)}
    assert (rows["cy"].token, rows["cy"].ended_at) == (tokens["cy"], None)
    assert rows["bo"].token != tokens["bo"]


async def test_room_and_failed_cards_are_not_replaced(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    room = NewDelivery(request=a_request(), person=room_person("C1"), channel="slack", address="C1", kind="room")
    await deliveries.plan([room, a_card()])
    rows = {row.person: row.token for row in await deliveries.of_request(APPROVAL)}
    await deliveries.record_failure(rows["bo"], "gone", "", again_after=None)
    assert await deliveries.replace_old(told(), ALL | {room.person}) == 0
    assert await deliveries.plan([a_card(request=told())]) == 0


async def test_dropped_card_makes_room_for_one_with_the_answer(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    await deliveries.plan([a_card()])
    [old] = await deliveries.of_request(APPROVAL)
    await deliveries.drop(old.token)
    assert await deliveries.replace_old(told(), ALL) == 0
    assert await deliveries.plan([a_card()]) == 0
    assert await deliveries.plan([a_card(request=told())]) == 1
    [new] = await deliveries.claim_due(9, "slack")
    assert (new.token != old.token, new.request.thread) == (True, told().thread)


async def test_replaced_card_is_out_until_the_new_one_is_tried(store: Store) -> None:
    deliveries, since = DeliveryQueue(store), datetime.now(UTC) + timedelta(seconds=30)

    async def out() -> list[tuple[str, bool]]:
        return [(row.token, row.replaced) for row in await deliveries.list_out("slack", "bo", since, since)]

    old = (await sent(deliveries, a_card()))["bo"]
    await deliveries.replace_old(told(), ALL)
    await deliveries.record_closed(old)
    assert await out() == [(old, True)]
    await deliveries.replace_old(told(2), ALL)
    assert await out() == [(old, True)]
    [new] = await deliveries.of_request(APPROVAL)
    await deliveries.record_try([new.token])
    assert await out() == [(new.token, False)]


async def test_replaced_card_is_not_out_after_the_end(store: Store) -> None:
    deliveries, since = DeliveryQueue(store), datetime.now(UTC) + timedelta(seconds=30)
    await sent(deliveries, a_card())
    await deliveries.replace_old(told(), ALL)
    await deliveries.end(APPROVAL, 1, replace(told(), state="denied"))
    assert await deliveries.list_out("slack", "bo", since, since) == []


async def test_replaced_cards_are_listed_on_request(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    await sent(deliveries, a_card())
    for number in (1, 2, 3):
        await deliveries.replace_old(told(number), ALL)
    assert len(await deliveries.of_request(APPROVAL)) == 1
    rows = await deliveries.of_request(APPROVAL, 1, replaced=True)
    assert sorted(row.replaced for row in rows) == [False, True, True, True]


async def test_further_messages_of_a_worker_make_no_cards(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    await sent(deliveries, a_card())
    more = [RequestMessage(number=number, by="agent", text="words", revision=1) for number in (3, 4, 5)]
    request = replace(told(), messages=(*told().messages, *more))
    await deliveries.replace_old(request, ALL)
    assert await deliveries.replace_old(request, ALL) == 0
    rows = await store.read(lambda connection: connection.scalars(select(DELIVERIES.c.approval)).all())
    assert sorted(rows) == [APPROVAL, f"{APPROVAL}!0"]


async def test_new_card_is_sent_to_a_person_who_read_the_old_one(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    await sent(deliveries, a_card())
    await deliveries.state("slack", "m-bo", "read")
    await deliveries.replace_old(told(), ALL)
    [new] = await deliveries.claim_due(9, "slack")
    assert await deliveries.find_read_elsewhere([new.token]) == frozenset()


async def test_reminder_keeps_the_messages_that_the_card_showed(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    old = (await sent(deliveries, a_card()))["bo"]
    reminded = replace(told(), reminded=1)
    assert await deliveries.remind(reminded) == 1
    row = some(await deliveries.by_token(old))
    assert (row.request.reminded, row.request.thread, row.request.messages) == (1, "", ())


async def test_end_closes_the_new_card(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    old = (await sent(deliveries, a_card()))["bo"]
    await deliveries.replace_old(told(), ALL)
    [new] = await deliveries.of_request(APPROVAL)
    await deliveries.record_sent(new.token, "m2", {})
    await deliveries.end(APPROVAL, 1, replace(told(), state="denied"))
    closing = {row.token: row.request.state for row in await deliveries.claim_to_close(9, "slack")}
    assert closing == {old: "pending", new.token: "denied"}
