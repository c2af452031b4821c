import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from some import some
from sqlalchemy import update

from signoff.contracts.content import Content
from signoff.formats.replace import replace
from signoff.formats.tenant_limits import parse_tenant_limits
from signoff.store.delivery_queue import DeliveryQueue, DeliveryRow, NewDelivery, Reported, delivery_token
from signoff.store.leases import deal
from signoff.store.store import Store, open_store
from signoff.store.tables import COUNTED_ACTS, DELIVERIES, StoreClock
from signoff.testing import a_request


def a_card(person: str = "bo", channel: str = "slack", **fields: Any) -> NewDelivery:
    return NewDelivery(**({"request": a_request(), "person": person, "channel": channel, "address": person} | fields))


async def out(deliveries: DeliveryQueue, **fields: Any) -> DeliveryRow:
    await deliveries.plan([a_card(**fields)])
    (row,) = await deliveries.claim_due(9, "slack")
    await deliveries.record_sent(row.token, "m1", {"ts": "1"})
    return await read(deliveries, row.token)


async def read(deliveries: DeliveryQueue, token: str) -> DeliveryRow:
    return some(await deliveries.by_token(token))


async def let_leases_end(store: Store) -> None:
    await store.run(lambda connection: connection.execute(update(DELIVERIES).values(claimed_until=0)).close())


async def test_card_is_planned_once(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    cards = [a_card(), a_card(channel="mail"), a_card("cy")]
    assert sorted(await asyncio.gather(deliveries.plan(cards), deliveries.plan(cards[::-1]))) == [0, 3]
    assert await deliveries.plan([a_card(address="elsewhere"), a_card("di")]) == 1
    rows = await deliveries.of_request("main.s.t.c1.1")
    assert {(row.person, row.channel, row.address) for row in rows} == {
        ("bo", "slack", "bo"), ("bo", "mail", "bo"), ("cy", "slack", "cy"), ("di", "slack", "di")
    }  # fmt: skip
    assert all(row.request == a_request() for row in rows)
    assert await deliveries.of_request("main.s.t.c1.1", 2) == []


async def test_delivery_token_is_unique_per_card_and_opaque(store: Store) -> None:
    parts: list[tuple[str, int, str, str]] = [("a", 1, "p", "c"), ("b", 1, "p", "c"), ("a", 2, "p", "c")]
    parts += [("a", 1, "q", "c"), ("a", 1, "p", "d")]
    tokens = [delivery_token(b"k" * 32, *each) for each in parts]
    assert len({*tokens, delivery_token(b"l" * 32, *parts[0])}) == 6
    assert all(len(token) == 26 and token.isalnum() and token == token.lower() for token in tokens)
    row = await out(DeliveryQueue(store))
    key = await store.secret_key("deliveries")
    assert row.token == delivery_token(key, "main.s.t.c1.1", 1, "bo", "slack")


async def test_claimed_card_is_leased_for_a_minute(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    await deliveries.plan([a_card()])
    (first,) = await deliveries.claim_due(9, "slack")
    assert await deliveries.claim_due(9, "slack") == []
    await let_leases_end(store)
    (again,) = await deliveries.claim_due(9, "slack")
    assert (again.token, first.attempts, again.attempts) == (first.token, 1, 2)


async def test_only_due_cards_of_the_given_channel_are_claimed(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    now = datetime.now(UTC)
    ages = {"bo": -5, "cy": -9, "di": 60}
    await deliveries.plan([a_card(who, due_at=now + timedelta(seconds=age)) for who, age in ages.items()])
    await deliveries.plan([a_card("bo", "mail")])
    assert await deliveries.claim_due(9, "webhook") == []
    assert [row.person for row in await deliveries.claim_due(1, "slack")] == ["cy"]
    assert [row.person for row in await deliveries.claim_due(9, "slack")] == ["bo"]


async def test_concurrent_senders_share_the_cards(store_url: str) -> None:
    stores = [await Store.open(store_url) for _ in range(3)]
    people = [f"p{number}" for number in range(40)]
    await DeliveryQueue(stores[0]).plan([a_card(person) for person in people])
    found = await asyncio.gather(*(DeliveryQueue(stores[at % 3]).claim_due(15, "slack") for at in range(6)))
    found.append(await DeliveryQueue(stores[0]).claim_due(40, "slack"))
    assert sorted(row.person for rows in found for row in rows) == sorted(people)
    for store in stores:
        await store.close()


@pytest.mark.postgres
async def test_claim_skips_the_rows_locked_by_another(postgres_url: str) -> None:
    async with open_store(postgres_url) as store:
        deliveries = DeliveryQueue(store)
        await deliveries.plan([a_card(f"p{number}") for number in range(20)])
        other = await asyncpg.connect(postgres_url)
        try:
            async with other.transaction():
                held = await other.fetch("SELECT token FROM deliveries ORDER BY due_at, token LIMIT 10 FOR UPDATE")
                found = await deliveries.claim_due(10, "slack")
                assert len(found) == 10
                assert {row.token for row in found}.isdisjoint(row["token"] for row in held)
        finally:
            await other.close()


async def test_failed_delivery_is_due_again_later(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    await deliveries.plan([a_card()])
    (row,) = await deliveries.claim_due(9, "slack")
    await deliveries.record_failure(row.token, "rate\0limited", "wait\ud800 " * 200, again_after=30)
    assert await deliveries.claim_due(9, "slack") == []
    now = await read(deliveries, row.token)
    assert (now.state, now.code, now.message[:6], len(now.message)) == ("planned", "rate�limited", "wait� ", 500)
    assert timedelta(seconds=20) < now.due_at - datetime.now(UTC) < timedelta(seconds=31)
    await deliveries.record_failure(row.token, "", "", again_after=0)
    assert [each.token for each in await deliveries.claim_due(9, "slack")] == [row.token]


async def test_final_failure_is_not_retried(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    await deliveries.plan([a_card()])
    (row,) = await deliveries.claim_due(9, "slack")
    await deliveries.record_failure(row.token, "gone", "no such user", again_after=None)
    await let_leases_end(store)
    assert await deliveries.claim_due(9, "slack") == []
    now = await read(deliveries, row.token)
    assert (now.state, now.code, now.message) == ("failed", "gone", "no such user")


@pytest.mark.parametrize(
    ("expected", "state"),
    [
        (["delivered", "read"], "read"),
        (["read", "delivered", "sent"], "read"),
        (["failed"], "failed"),
        (["failed", "delivered"], "failed"),
        (["delivered", "failed"], "delivered"),
        (["unknown"], "sent"),
    ],
)
async def test_delivery_state_never_moves_backwards(store: Store, expected: list[Reported], state: str) -> None:
    deliveries = DeliveryQueue(store)
    row = await out(deliveries)
    for each in expected:
        assert await deliveries.state("slack", "m1", each) is not None
    assert (await read(deliveries, row.token)).state == state


async def test_report_about_an_unknown_message_changes_nothing(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    row = await out(deliveries)
    await deliveries.plan([a_card("cy")])
    assert await deliveries.state("mail", "m1", "read") is None
    assert await deliveries.state("slack", "", "read") is None
    assert await deliveries.state("slack", "m2", "read") is None
    assert await read(deliveries, row.token) == row
    await deliveries.state("slack", "m1", "unknown", "odd", "never heard of")
    noted = await read(deliveries, row.token)
    assert (noted.state, noted.code, noted.message) == ("sent", "odd", "never heard of")
    await deliveries.state("slack", "m1", "failed", "131026", "undeliverable")
    assert (await read(deliveries, row.token)).code == "131026"


async def test_cards_are_found_by_vendor_id_person_and_token(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    row = await out(deliveries, request=a_request(args=Content(inline={"to": "ü"})))
    assert (row.handle, row.sent_at is not None, row.request.args.inline) == ({"ts": "1"}, True, {"to": "ü"})
    assert await deliveries.by_vendor("slack", ["other", "m1"]) == [row]
    assert await deliveries.by_vendor("mail", ["m1"]) == []
    await deliveries.plan([a_card("cy")])
    assert await deliveries.by_vendor("slack", ["", "x" * 900]) == []
    assert await deliveries.by_vendor("slack", []) == []
    assert await deliveries.list_out("slack", "bo", row.changed_at, row.changed_at) == [row]
    assert await deliveries.list_out("slack", "cy", row.changed_at, row.changed_at) == []
    assert await deliveries.list_out("mail", "bo", row.changed_at, row.changed_at) == []
    assert await deliveries.by_token(row.token[:25]) is None
    assert await deliveries.by_token(row.token + "a") is None
    assert await deliveries.by_token("\0") is None


async def test_end_closes_delivered_cards_and_drops_the_rest(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    row = await out(deliveries)
    await deliveries.plan([a_card("cy"), a_card("di")])
    (under_way,) = await deliveries.claim_due(1, "slack")
    assert await deliveries.record_try([under_way.token]) == {under_way.token}
    ended = a_request(state="denied", decided_name="Bo")
    assert await deliveries.end("main.s.t.c1.1", 1, ended) == 3
    assert await deliveries.end("main.s.t.c1.1", 1, a_request(state="approved")) == 0
    later = row.changed_at + timedelta(hours=1)
    assert await deliveries.list_out("slack", "bo", later, later) == []
    assert await deliveries.claim_due(9, "slack") == []
    (closing,) = await deliveries.claim_to_close(9, "slack")
    assert (closing.token, closing.request.decided_name, closing.attempts) == (row.token, "Bo", 1)
    await deliveries.record_sent(under_way.token, "m2", {})
    (late,) = await deliveries.claim_to_close(9, "slack")
    assert late.token == under_way.token
    await deliveries.record_failure(row.token, "down", "", again_after=0)
    assert [each.token for each in await deliveries.claim_to_close(9, "slack")] == [row.token]
    for token in (row.token, under_way.token):
        await deliveries.record_closed(token)
    await let_leases_end(store)
    assert await deliveries.claim_to_close(9, "slack") == []
    rows = await deliveries.of_request("main.s.t.c1.1")
    assert sorted((each.state, each.closed_at is not None) for each in rows) == [
        ("closed", True), ("closed", True), ("dropped", False)
    ]  # fmt: skip
    assert await deliveries.state("slack", "m1", "read") is not None
    assert (await read(deliveries, row.token)).state == "closed"


async def test_card_claimed_and_put_back_counts_as_never_tried(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    await deliveries.plan([a_card()])
    (row,) = await deliveries.claim_due(9, "slack")
    await deliveries.record_failure(row.token, "", "", again_after=0)
    await deliveries.end("main.s.t.c1.1", 1, a_request(state="denied"))
    assert (await read(deliveries, row.token)).state == "dropped"
    assert await deliveries.record_try([row.token]) == frozenset()
    assert await deliveries.claim_to_close(9, "slack") == []


async def test_end_of_one_revision_leaves_the_next(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    await out(deliveries)
    await deliveries.plan([a_card(request=a_request(revision=2))])
    await deliveries.end("main.s.t.c1.1", 1, a_request(state="cancelled"))
    assert [row.revision for row in await deliveries.claim_due(9, "slack")] == [2]
    assert [row.revision for row in await deliveries.list_unfinished(9)] == [2]


async def test_unfinished_cards_are_read_page_by_page(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    await deliveries.plan([a_card(f"p{number}") for number in range(5)])
    found: list[DeliveryRow] = []
    while page := await deliveries.list_unfinished(2, found[-1] if found else None):
        found += page
    assert sorted(row.person for row in found) == [f"p{number}" for number in range(5)]


async def test_finished_deliveries_are_removed_after_a_time(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    row = await out(deliveries)
    await deliveries.plan([a_card(request=a_request(revision=2)), a_card("cy", request=a_request(revision=2))])
    (first, _) = await deliveries.of_request("main.s.t.c1.1", 2)
    await deliveries.drop(first.token)
    assert await deliveries.sweep(timedelta(days=400)) == 0
    assert await deliveries.sweep(timedelta(seconds=-1)) == 1
    assert await deliveries.by_token(first.token) is None
    await deliveries.end("main.s.t.c1.1", 1, a_request(state="denied"))
    assert await deliveries.sweep(timedelta(seconds=-1)) == 0
    await deliveries.record_closed(row.token)
    assert await deliveries.sweep(timedelta(seconds=-1)) == 1


async def test_reminder_sends_the_same_card_again(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    row = await out(deliveries)
    await deliveries.plan([a_card("cy", due_at=datetime.now(UTC) + timedelta(hours=1))])
    assert await deliveries.remind(a_request(reminded=1)) == 1
    (reminder,) = await deliveries.claim_due(9, "slack")
    assert (reminder.token, reminder.vendor_id, reminder.state) == (row.token, "m1", "sent")
    assert reminder.remind_at is not None
    await deliveries.record_reminder(row.token)
    assert await deliveries.claim_due(9, "slack") == []
    assert (await read(deliveries, row.token)).remind_at is None


async def test_reminder_of_a_digest_stays_a_digest(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    await deliveries.plan([a_card()])
    (row,) = await deliveries.claim_due(9, "slack")
    await deliveries.record_sent(row.token, "m1", {}, kind="digest")
    await deliveries.remind(a_request(reminded=1))
    assert [each.kind for each in await deliveries.claim_due(9, "slack")] == ["digest"]
    await deliveries.record_reminder(row.token)
    assert (await read(deliveries, row.token)).kind == "digest"
    await deliveries.remind(a_request(reminded=2))
    await deliveries.record_failure(row.token, "gone", "", again_after=None)
    assert (await read(deliveries, row.token)).kind == "digest"


async def test_reminder_counts_once_and_carries_the_present_request(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    row = await out(deliveries)
    extended = datetime(2030, 1, 1, tzinfo=UTC)
    later = a_request(reminded=1, escalated=True, extended=True, expires_at=extended)
    assert await deliveries.renew(later) == 1
    assert await deliveries.renew(later) == 0
    now = await read(deliveries, row.token)
    assert (now.request.reminded, now.request.expires_at, now.remind_at) == (0, extended, None)
    assert sorted(await asyncio.gather(*(deliveries.remind(a_request(reminded=1)) for _ in range(2)))) == [0, 1]
    now = await read(deliveries, row.token)
    assert (now.request.reminded, now.request.expires_at) == (1, extended)
    await deliveries.record_reminder(row.token)
    assert await deliveries.remind(replace(later, reminded=2)) == 1
    assert await deliveries.remind(a_request(reminded=1)) == 0
    assert await deliveries.renew(a_request(escalated=True)) == 0
    assert (await read(deliveries, row.token)).request == replace(later, reminded=2)


async def test_card_keeps_a_moved_deadline_after_earlier_notices(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    row = await out(deliveries)
    first, moved = (a_request(expires_at=datetime(2030, 1, 1, 0, minute, tzinfo=UTC)) for minute in (0, 15))
    assert await deliveries.renew(moved) == 1
    assert await deliveries.renew(first) == 0
    await deliveries.remind(replace(first, reminded=1))
    now = (await read(deliveries, row.token)).request
    assert (now.reminded, now.expires_at) == (1, moved.expires_at)


async def test_failed_reminder_leaves_its_card_sent(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    row = await out(deliveries)
    await deliveries.remind(a_request(reminded=1))
    await deliveries.claim_due(9, "slack")
    await deliveries.record_failure(row.token, "gone", "", again_after=None)
    now = await read(deliveries, row.token)
    assert (now.state, now.remind_at, now.code) == ("sent", None, "gone")
    await let_leases_end(store)
    assert await deliveries.claim_due(9, "slack") == []


async def test_scheduled_card_may_be_expedited(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    await deliveries.plan([a_card(due_at=datetime.now(UTC) + timedelta(hours=1))])
    (row,) = await deliveries.of_request("main.s.t.c1.1")
    await deliveries.expedite(row.token)
    assert [each.token for each in await deliveries.claim_due(9, "slack")] == [row.token]


async def test_dropped_card_is_not_sent(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    row = await out(deliveries)
    await deliveries.plan([a_card("cy")])
    cards = await deliveries.of_request("main.s.t.c1.1")
    for card in cards:
        await deliveries.drop(card.token)
    assert await deliveries.claim_due(9, "slack") == []
    assert {each.person: each.state for each in await deliveries.of_request("main.s.t.c1.1")} == {
        row.person: "sent", "cy": "dropped"
    }  # fmt: skip


async def test_single_message_may_cover_several_requests(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    requests = [a_request(id=f"main.s.t.c1.{number}") for number in (1, 2)]
    await deliveries.plan([a_card(request=request) for request in requests])
    for row in await deliveries.claim_due(9, "slack"):
        await deliveries.record_sent(row.token, "m1", {}, kind="digest")
    both = await deliveries.by_vendor("slack", ["m1"])
    assert {(row.approval, row.kind) for row in both} == {(request.id, "digest") for request in requests}
    await deliveries.state("slack", "m1", "read")
    assert {row.state for row in await deliveries.by_vendor("slack", ["m1"])} == {"read"}


async def test_unreadable_card_does_not_block_others(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    await deliveries.plan([a_card("bo"), a_card("cy"), a_card("di")])
    odd = update(DELIVERIES).where(DELIVERIES.c.person == "bo").values(request='{"id": "x"}', due_at=0)
    worse = update(DELIVERIES).where(DELIVERIES.c.person == "cy").values(handle="{", due_at=1)
    for change in (odd, worse):
        await store.run(lambda connection, change=change: connection.execute(change).close())
    assert [row.person for row in await deliveries.claim_due(3, "slack")] == ["di"]
    await let_leases_end(store)
    assert [row.person for row in await deliveries.claim_due(1, "slack")] == ["di"]
    assert [row.person for row in await deliveries.of_request("main.s.t.c1.1")] == ["di"]
    assert [row.person for row in await deliveries.list_unfinished(9)] == ["di"]
    assert await deliveries.renew(a_request(escalated=True)) == 2
    assert await deliveries.end("main.s.t.c1.1", 1, a_request(state="approved")) == 3


async def test_cards_survive_a_restart(sqlite_url: str) -> None:
    async with open_store(sqlite_url) as store:
        row = await out(DeliveryQueue(store))
    async with open_store(sqlite_url) as store:
        assert await read(DeliveryQueue(store), row.token) == row


async def test_tenant_with_thousands_of_cards_does_not_delay_others(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    noisy = replace(a_request(), id="acme.s.t.c1.1", tenant="acme")
    await deliveries.plan([a_card(f"p{number}", request=noisy) for number in range(2_000)])
    await deliveries.plan([a_card(f"q{number}") for number in range(3)])
    first = await deliveries.claim_due(20, "slack")
    assert sorted(row.person for row in first if row.tenant == "main") == ["q0", "q1", "q2"]
    assert len(first) == 20
    assert {row.tenant for row in await deliveries.claim_due(20, "slack")} == {"acme"}


def cards_of(tenant: str, number: int) -> list[NewDelivery]:
    request = a_request(tenant=tenant, id=f"{tenant}.s.t.c1.1")
    return [a_card(f"p{each}", request=request) for each in range(number)]


async def let_the_time_of_limits_pass(store: Store) -> None:
    earlier = update(COUNTED_ACTS).values(at=COUNTED_ACTS.c.at - 3_600_000)
    await store.run(lambda connection: connection.execute(earlier).close())


async def test_deliveries_of_a_tenant_never_exceed_its_limit(store: Store) -> None:
    limits = parse_tenant_limits("deliveries=3/hour; acme: deliveries=off; beta: deliveries=1/hour")
    deliveries = DeliveryQueue(store, limits)
    for tenant, number in (("main", 8), ("acme", 6), ("beta", 3), ("calm", 2)):
        await deliveries.plan(cards_of(tenant, number))
    first = [row.tenant for row in await deliveries.claim_due(50, "slack")]
    assert {each: first.count(each) for each in first} == {"main": 3, "acme": 6, "beta": 1, "calm": 2}
    assert await deliveries.claim_due(50, "slack") == []
    await let_the_time_of_limits_pass(store)
    again = [row.tenant for row in await deliveries.claim_due(50, "slack")]
    assert (again.count("main"), again.count("beta"), len(again)) == (3, 1, 4)


async def test_retried_delivery_counts_again(store: Store) -> None:
    deliveries = DeliveryQueue(store, parse_tenant_limits("deliveries=3/hour"))
    await deliveries.plan(cards_of("main", 2))
    for row in await deliveries.claim_due(9, "slack"):
        await deliveries.record_failure(row.token, "busy", "", again_after=0)
    assert len(await deliveries.claim_due(9, "slack")) == 1


async def test_closing_a_card_ignores_the_limit(store: Store) -> None:
    deliveries = DeliveryQueue(store, parse_tenant_limits("deliveries=1/hour"))
    row = await out(deliveries)
    await deliveries.end(row.approval, 1, row.request)
    assert [each.token for each in await deliveries.claim_to_close(9, "slack")] == [row.token]


async def test_concurrent_senders_respect_the_limit_together(store_url: str) -> None:
    limits = parse_tenant_limits("deliveries=7/hour")
    async with open_store(store_url) as one, open_store(store_url) as two, open_store(store_url) as three:
        queues = [DeliveryQueue(each, limits) for each in (one, two, three)]
        for tenant in ("main", "acme"):
            await queues[0].plan(cards_of(tenant, 30))
        found = await asyncio.gather(*(queues[at % 3].claim_due(5, "slack") for at in range(6)))
        # Two senders that read the same rows had to share them.
        found += [await queues[0].claim_due(5, "slack") for _ in range(3)]
        tenants = [row.tenant for rows in found for row in rows]
        assert (tenants.count("main"), tenants.count("acme")) == (7, 7)


@pytest.mark.parametrize(
    ("left", "number", "dealt"),
    [
        ({"a": 9, "b": 9}, 5, {"a": 3, "b": 2}),
        ({"a": 1, "b": 9, "c": 2}, 8, {"a": 1, "b": 5, "c": 2}),
        ({"a": 9, "b": 9, "c": 9}, 2, {"a": 1, "b": 1}),
        ({"a": 0, "b": -3, "c": 1}, 4, {"c": 1}),
        ({}, 4, {}),
        ({"a": 3}, 0, {}),
    ],
)
def test_rows_are_dealt_to_shares_in_turns(left: dict[str, int], number: int, dealt: dict[str, int]) -> None:
    assert deal(left, number) == dealt


async def test_claim_takes_the_rest_from_tenants_with_more(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    for tenant, number in (("acme", 2), ("beta", 30), ("calm", 4)):
        await deliveries.plan(cards_of(tenant, number))
    found = [row.tenant for row in await deliveries.claim_due(20, "slack")]
    assert {each: found.count(each) for each in found} == {"acme": 2, "beta": 14, "calm": 4}


async def test_card_whose_claim_lapsed_waits_since_the_lapse(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    await deliveries.plan([a_card("bo"), a_card("cy")])
    # The lapse must be later than the other card, also on a fast machine.
    await asyncio.sleep(0.01)
    (first,) = await deliveries.claim_due(1, "slack")
    lapsed = update(DELIVERIES).where(DELIVERIES.c.token == first.token).values(claimed_until=StoreClock() - 1)
    await store.run(lambda connection: connection.execute(lapsed).close())
    found = [row.person for _ in range(2) for row in await deliveries.claim_due(1, "slack")]
    assert found == [({"bo", "cy"} - {first.person}).pop(), first.person]


async def test_card_read_on_another_channel_is_found(store: Store) -> None:
    deliveries = DeliveryQueue(store)
    await out(deliveries)
    await deliveries.plan([a_card(channel="mail"), a_card("cy", "mail")])
    cards = {row.person: row.token for row in await deliveries.claim_due(9, "mail")}
    assert await deliveries.find_read_elsewhere(list(cards.values())) == frozenset()
    await deliveries.state("slack", "m1", "read")
    assert await deliveries.find_read_elsewhere(list(cards.values())) == {cards["bo"]}
