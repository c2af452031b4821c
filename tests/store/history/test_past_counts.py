from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from signoff.contracts.responses import PastRequest
from signoff.store.history.past_counts import SLICE, PastCount, count_past, count_slices
from signoff.store.history.past_requests import PastRow, PastSearch, put_past
from signoff.store.history.search_words import mark
from signoff.store.store import Store

AT = datetime(2026, 1, 1, tzinfo=UTC)
EVERY = mark("main", "tenant")
OTHER = mark("other", "tenant")


async def put(store: Store, number: int, word: str = EVERY, *, after: float = 60, **fields: Any) -> None:
    over_at = AT + timedelta(minutes=number)
    given = {
        "tool": "pay", "rule": "requires_approval", "state": "approved", "decided_by": "ana", "channel": "inbox",
        "opened_at": over_at - timedelta(seconds=after), **fields,
    }  # fmt: skip
    body = PastRequest(id=f"a{number}", code="K7Q2FM", effect="Pay", requester="guest", over_at=over_at, **given)
    row = PastRow(body.id, "main", f"turn/main/s/t{number}", over_at, body.model_dump_json(), "{}", (word,))
    await store.run(partial(put_past, row=row))


async def count(
    store: Store, *, word: str = EVERY, persons: Collection[str] | None = None, limit: int = 100, **times: datetime
) -> Sequence[PastCount]:
    wanted = PastSearch((frozenset((word,)),), **times)
    return sorted(await store.read(partial(count_past, wanted=wanted, persons=persons, limit=limit)), key=str)


async def test_equal_requests_are_counted_together_and_tenants_apart(store: Store) -> None:
    for number in range(3):
        await put(store, number)
    await put(store, 3, state="denied", decided_by="bo", channel="slack")
    await put(store, 4, OTHER)
    assert await count(store) == [
        PastCount("pay", "requires_approval", "approved", "ana", "inbox", 60, 3),
        PastCount("pay", "requires_approval", "denied", "bo", "slack", 60, 1),
    ]
    assert [each.requests for each in await count(store, word=OTHER)] == [1]
    assert await store.read(partial(count_past, wanted=PastSearch((frozenset(),)), persons=None, limit=9)) == ()


async def test_people_who_may_not_be_named_are_counted_without_names(store: Store) -> None:
    await put(store, 1)
    await put(store, 2, decided_by="bo")
    for persons, names in ((None, {"ana", "bo"}), ({"bo"}, {"", "bo"}), ((), {""})):
        found = await count(store, persons=persons)
        assert ({each.person for each in found}, sum(each.requests for each in found)) == (names, 2)


async def test_seconds_are_rounded_up_and_unknown_without_a_start(store: Store) -> None:
    await put(store, 1, after=3.0)
    await put(store, 2, after=3.001)
    await put(store, 3, opened_at=None)
    assert {each.seconds for each in await count(store)} == {3, 4, None}


async def test_requests_about_unknown_outcomes_do_not_count(store: Store) -> None:
    await put(store, 1, kind="in_doubt")
    assert await count(store) == []


async def test_rows_of_earlier_versions_count_without_a_rule(store: Store) -> None:
    body = PastRequest(
        id="a", code="K7Q2FM", effect="Pay", requester="guest", tool="pay", state="denied", over_at=AT
    ).model_dump_json(exclude={"rule", "channel", "decided_by"})
    await store.run(partial(put_past, row=PastRow("a", "main", "turn/main/s/t", AT, body, "{}", (EVERY,))))
    assert await count(store) == [PastCount("pay", "", "denied", "", "", None, 1)]


async def test_only_the_newest_requests_of_the_span_count(store: Store) -> None:
    for number in range(5):
        await put(store, number, tool=f"t{number}")
    assert {each.tool for each in await count(store, limit=2)} == {"t4", "t3"}
    assert {each.tool for each in await count(store, since=AT + timedelta(minutes=3))} == {"t4", "t3"}


async def test_requests_are_counted_by_quarter_of_an_hour(store: Store) -> None:
    for number in (0, 14, 15, 44, 45):
        await put(store, number)
    await put(store, 1, OTHER)
    wanted = PastSearch((frozenset((EVERY,)),), until=AT + timedelta(minutes=45))
    found = await store.read(partial(count_slices, wanted=wanted, limit=9))
    assert found == {AT: 2, AT + SLICE: 1, AT + 2 * SLICE: 1}
    newest = await store.read(partial(count_slices, wanted=PastSearch(wanted.groups), limit=2))
    assert newest == {AT + 2 * SLICE: 1, AT + 3 * SLICE: 1}
    assert await store.read(partial(count_slices, wanted=PastSearch((frozenset(),)), limit=9)) == {}
