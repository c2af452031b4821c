import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import update

from signoff.approvals.notifications import Notice, NoticeKind
from signoff.contracts.call import CallOutcome
from signoff.contracts.ids import TurnKey
from signoff.formats.tenant_limits import parse_tenant_limits
from signoff.store.delivery_queue import DeliveryQueue
from signoff.store.messages.notices import NewNotice, NoticeRow, Notices
from signoff.store.store import Store
from signoff.store.tables import DELIVERIES
from signoff.store.tickets import ticket_key
from signoff.testing import a_request

NOW = datetime.now(UTC)
ABOUT = "main.s.t.c1.1"


def a_notice(kind: NoticeKind = "decided", **fields: Any) -> Notice:
    return Notice(kind=kind, about=ABOUT, at=NOW, request=a_request(**fields))


def new(kind: NoticeKind = "decided", person: str = "bo", channel: str = "slack", **fields: Any) -> NewNotice:
    given = {"tenant": "main", "person": person, "channel": channel, "address": person, "notice": a_notice(kind)}
    return NewNotice(**given | fields)


async def claimed(notices: Notices, channel: str = "slack") -> NoticeRow:
    (row,) = await notices.claim_due(9, channel)
    return row


async def let_leases_end(store: Store) -> None:
    await store.run(lambda connection: connection.execute(update(DELIVERIES).values(claimed_until=0)).close())


async def states(store: Store) -> dict[str, str]:
    rows = await store.read(lambda connection: connection.execute(DELIVERIES.select()).all())
    return {f"{row.kind}{row.channel}": row.state for row in rows}


async def test_notice_is_planned_once_for_person_channel_and_event(store: Store) -> None:
    notices = Notices(store)
    rows = [new(), new(person="cy"), new(channel="mail"), new("ran")]
    assert sorted(await asyncio.gather(notices.plan(rows), notices.plan(rows[::-1]))) == [0, 4]
    assert await notices.plan([new("failed"), new(notice=a_notice(revision=2))]) == 1
    assert len(await notices.of_request(ABOUT)) == 5


async def test_notice_is_no_card(store: Store) -> None:
    """Otherwise an answer could name it, and the end of the request would close it."""
    notices, cards = Notices(store), DeliveryQueue(store)
    await notices.plan([new()])
    row = await claimed(notices)
    assert await notices.begin(row.token)
    assert await cards.by_token(row.token) is None
    assert await cards.of_request(ABOUT) == []
    assert await cards.list_unfinished(9) == []
    assert await cards.claim_due(9, "slack") == []
    assert await cards.end(ABOUT, 1, a_request(state="denied")) == 0
    long_ago, later = NOW - timedelta(days=1), NOW + timedelta(days=1)
    assert await cards.list_out("slack", "bo", long_ago, later) == []


async def test_sent_notice_is_not_claimed_again(store: Store) -> None:
    notices = Notices(store)
    await notices.plan([new()])
    row = await claimed(notices)
    assert await notices.begin(row.token)
    await notices.record_sent(row.token)
    await let_leases_end(store)
    assert await notices.claim_due(9, "slack") == []
    assert await notices.plan([new()]) == 0


async def test_attempt_that_a_crash_cut_off_is_not_repeated(store: Store) -> None:
    notices = Notices(store)
    await notices.plan([new()])
    assert await notices.begin((await claimed(notices)).token)
    await let_leases_end(store)
    row = await claimed(notices)
    assert not await notices.begin(row.token)
    assert await states(store) == {"decided!slack": "failed"}


async def test_failed_attempt_is_repeated(store: Store) -> None:
    notices = Notices(store)
    await notices.plan([new()])
    for number in (1, 2):
        row = await claimed(notices)
        assert row.attempts == number
        assert await notices.begin(row.token)
        await notices.record_failure(row.token, "busy", "later", again_after=0.0)


async def test_next_channel_is_due_after_a_final_failure_alone(store: Store) -> None:
    notices, later = Notices(store), NOW + timedelta(days=9)
    await notices.plan([new(), new(channel="mail", due_at=later)])
    row = await claimed(notices)
    assert await notices.has_next(row.token)
    assert await notices.claim_due(9, "mail") == []
    await notices.record_failure(row.token, "gone", "no", again_after=None)
    mail = await claimed(notices, "mail")
    assert not await notices.has_next(mail.token)


async def test_sent_notice_drops_later_channels_but_not_simultaneous_ones(store: Store) -> None:
    notices, later = Notices(store), NOW + timedelta(days=9)
    same = NOW - timedelta(seconds=1)
    await notices.plan([new(due_at=same), new(channel="desk", due_at=same), new(channel="mail", due_at=later)])
    row = await claimed(notices)
    await notices.begin(row.token)
    await notices.record_sent(row.token)
    assert await states(store) == {"decided!slack": "closed", "decided!desk": "planned", "decided!mail": "dropped"}


async def test_notice_with_an_unknown_end_drops_later_channels_alone(store: Store) -> None:
    """Its recipient may have it. The later channels would otherwise send it in a year."""
    notices, later = Notices(store), NOW + timedelta(days=9)
    same = NOW - timedelta(seconds=1)
    await notices.plan([new(due_at=same), new(channel="desk", due_at=same), new(channel="mail", due_at=later)])
    assert await notices.begin((await claimed(notices)).token)
    await let_leases_end(store)
    assert not await notices.begin((await claimed(notices)).token)
    assert await states(store) == {"decided!slack": "failed", "decided!desk": "planned", "decided!mail": "dropped"}


async def test_failure_of_one_channel_keeps_a_passkeys_notice_on_the_others(store: Store) -> None:
    notices = Notices(store)
    passkey = Notice(kind="passkey", about="main.p", at=NOW)
    channels = ("slack", "mail", "desk", "push")
    for channel in channels:
        # Each is due at once, by the store's clock at its own writing.
        await notices.plan([new(notice=passkey, channel=channel)])
    cut, sent, dropped = [await claimed(notices, channel) for channel in channels[:3]]
    assert await notices.begin(cut.token)
    await let_leases_end(store)
    assert not await notices.begin((await claimed(notices)).token)
    await notices.record_sent(sent.token)
    await notices.drop(dropped.token)
    assert (await states(store))["passkey!push"] == "planned"


async def test_dropped_notice_drops_later_channels_alone(store: Store) -> None:
    notices, later = Notices(store), NOW + timedelta(days=9)
    same = NOW - timedelta(seconds=1)
    await notices.plan([new(due_at=same), new(channel="desk", due_at=same), new(channel="mail", due_at=later)])
    await notices.drop((await claimed(notices)).token)
    assert await states(store) == {"decided!slack": "dropped", "decided!desk": "planned", "decided!mail": "dropped"}


async def test_end_drops_a_failed_attempt_of_the_notice_that_a_request_waits(store: Store) -> None:
    """The decision may have no notice. A running attempt keeps its row."""
    notices = Notices(store)
    await notices.plan([new("waiting"), new("waiting", channel="mail"), new("waiting", channel="desk")])
    failed = await claimed(notices)
    assert await notices.begin(failed.token)
    await notices.record_failure(failed.token, "busy", "later", again_after=60.0)
    assert await notices.begin((await claimed(notices, "mail")).token)
    assert await notices.plan([], ended=ABOUT) == 0
    assert await states(store) == {"waiting!slack": "dropped", "waiting!mail": "planned", "waiting!desk": "dropped"}


async def test_decision_drops_the_unsent_notice_that_a_request_waits(store: Store) -> None:
    notices = Notices(store)
    await notices.plan([new("waiting")])
    await notices.plan([new("decided")], ended=ABOUT)
    assert await states(store) == {"waiting!slack": "dropped", "decided!slack": "planned"}


async def test_followed_call_is_found_once_its_ticket_has_an_outcome(store: Store) -> None:
    notices, request = Notices(store), a_request()
    notice = a_notice("ran")
    assert (await notices.follow(notice, request), await notices.follow(notice, request)) == (1, 0)
    turn, key = TurnKey(request.tenant, request.session, request.turn).workflow_id, ticket_key("d" * 64, 1)
    await store.claim(key, workflow=turn, call=request.call, tool=request.tool, nonce="n")
    assert await notices.list_finished() == []
    assert await notices.list_unrouted() == []
    await store.record(key, CallOutcome(call=request.call, tool=request.tool, code="ok"))
    (call,) = await notices.list_finished()
    assert (call.ticket, call.nonce, call.outcome.code, call.row.notice) == (key, "n", "ok", notice)
    assert await notices.plan([new("ran")], call.row.token) == 1
    assert await notices.list_finished() == []
    assert await notices.follow(notice, request) == 0


async def test_followed_call_is_dropped_after_the_life_of_its_approval(store: Store) -> None:
    notices = Notices(store)
    await notices.follow(a_notice("ran"), a_request(grant_ttl=60.0))
    assert await notices.drop_old() == 0
    await store.run(lambda connection: connection.execute(update(DELIVERIES).values(due_at=0)).close())
    assert await notices.drop_old() == 1
    assert await states(store) == {"ran!": "dropped"}


async def test_open_notice_of_a_passkey_waits_for_its_channels(store: Store) -> None:
    notices = Notices(store)
    passkey = Notice(kind="passkey", about="main.p", at=NOW)
    write = await notices.open_writer(passkey, "main", "bo")
    await store.run(lambda connection: write(connection))
    (row,) = await notices.list_unrouted()
    assert (row.person, row.channel, row.notice) == ("bo", "", passkey)
    assert await notices.plan([new(notice=passkey), new(notice=passkey, channel="mail")], row.token) == 2
    assert await notices.list_unrouted() == []


async def test_notices_count_under_the_limit_of_cards(store: Store) -> None:
    limits = parse_tenant_limits("deliveries=1/hour")
    notices = Notices(store, limits)
    await notices.plan([new(), new(person="cy")])
    assert len(await notices.claim_due(9, "slack")) == 1
    assert await notices.claim_due(9, "slack") == []
