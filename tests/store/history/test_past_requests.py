from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, func, select

from signoff.store.history import past_requests
from signoff.store.history.past_requests import (
    PastPage,
    PastRow,
    PastSearch,
    find_seen,
    put_past,
    remove_past,
    search_past,
)
from signoff.store.history.search_words import MAX_WORDS, mark, words_of
from signoff.store.store import Store
from signoff.store.tables import PAST_REQUESTS

AT = datetime(2026, 1, 1, tzinfo=UTC)
EVERY = mark("main", "tenant")
HOSTILE = (
    '"', "'", '" OR "', "' | 'a", "a* OR b", "NEAR(pay now, 2)", "pay AND NOT now", "^pay", "words:pay", "past_words",
    "-pay", "(", ")", "\\", "%", "_", ":*", "a & !b", "\0", "--", "/* pay */",
    "pay;DROP TABLE past_requests", "\u00a7" + "0" * 32,
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"), "x" * 10_000, "pay " * 2_500,
)  # fmt: skip


def past(number: int, words: str = "pay", *, at: datetime | None = None) -> PastRow:
    when = AT + timedelta(minutes=number) if at is None else at
    return PastRow(
        f"main.s.t{number}.c", "main", f"turn/main/s/t{number}", when, str(number), "", (*words_of(words), EVERY)
    )


async def put(store: Store, *rows: PastRow) -> None:
    for row in rows:
        await store.run(partial(put_past, row=row))


async def search(
    store: Store, *groups: str, before: int | None = None, limit: int = 100, **times: datetime
) -> PastPage:
    wanted = PastSearch((frozenset((EVERY,)), *(frozenset(each.split("|")) for each in groups)), **times)
    return await store.read(partial(search_past, wanted=wanted, before=before, limit=limit))


async def found(store: Store, *groups: str, **times: datetime) -> list[str]:
    page = await search(store, *groups, **times)
    assert page.count == len(page.rows)
    return [row.body for row in page.rows]


def test_words_are_without_case_accents_and_signs() -> None:
    assert words_of("Zahle 1,250.50 EUR an José_Müller (straße)") == (
        "zahle", "1", "250", "50", "eur", "an", "jose", "muller", "strasse",
    )  # fmt: skip
    assert words_of("支払い42") == ("支", "払", "い", "42")
    assert words_of("pay PAY Pay") == ("pay",)
    assert words_of("  §-_' ") == ()
    assert len(words_of(" ".join(map(str, range(5_000))))) == MAX_WORDS


def test_marks_differ_by_tenant_kind_and_value() -> None:
    made = [
        mark("a", "tool", "x"),
        mark("b", "tool", "x"),
        mark("a", "actor", "x"),
        mark("a", "tool", "x", ""),
        mark("a", "tool", "y"),
    ]
    assert len(set(made)) == len(made)
    assert all(words_of(each) != (each,) for each in made)


async def test_search_finds_rows_with_a_word_of_each_group_newest_first(store: Store) -> None:
    await put(store, past(1, "pay ana"), past(3, "pay bo"), past(2, "order ana"))
    assert await found(store) == ["3", "2", "1"]
    assert await found(store, "ana") == ["2", "1"]
    assert await found(store, "ana", "pay") == ["1"]
    assert await found(store, "bo|order") == ["3", "2"]
    assert await found(store, "nobody") == []
    page = await store.read(partial(search_past, wanted=PastSearch((frozenset(),)), before=None, limit=9))
    assert page == PastPage((), 0)


async def test_dates_include_their_beginning_and_exclude_their_end(store: Store) -> None:
    await put(store, *(past(number) for number in range(5)))
    minute = timedelta(minutes=1)
    assert await found(store, since=AT + minute, until=AT + 3 * minute) == ["2", "1"]
    assert await found(store, since=AT + 4 * minute) == ["4"]
    assert await found(store, until=AT) == []


async def test_pages_neither_repeat_nor_omit_rows_of_one_millisecond(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_requests, "crc32", lambda name: 0)
    await put(store, *(past(number, at=AT) for number in range(7)))
    seen: list[str] = []
    before = None
    while rows := (await search(store, "pay", before=before, limit=3)).rows:
        seen += [row.body for row in rows]
        before = rows[-1].number
    assert sorted(seen) == [str(number) for number in range(7)]


async def test_row_is_replaced_and_removed_with_its_words(store: Store) -> None:
    await put(store, past(1, "pay ana"), past(2, "pay ana"))
    await put(store, past(1, "pay zoe"))
    assert await found(store, "ana") == ["2"]
    assert await found(store, "zoe") == ["1"]
    await store.run(partial(remove_past, approval="main.s.t1.c"))
    assert await found(store, "zoe") == []
    assert await found(store) == ["2"]


async def test_count_stops_at_its_limit_and_pages_continue(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_requests, "COUNTED", 3)
    await put(store, *(past(number) for number in range(5)))
    page = await search(store, "pay")
    assert (page.count, [row.body for row in page.rows]) == (3, ["4", "3", "2", "1", "0"])


@pytest.mark.parametrize("newest", [1, 6, 5_000])
async def test_many_rows_of_many_months_come_newest_first(
    store: Store, monkeypatch: pytest.MonkeyPatch, newest: int
) -> None:
    monkeypatch.setattr(past_requests, "COUNTED", 2)
    monkeypatch.setattr(past_requests, "NEWEST", newest)
    days = (0, 1, 30, 31, 59, 60, 200, 365, 366, 367)
    await put(store, *(past(day, "pay" if day % 2 else "pay even", at=AT + timedelta(days=day)) for day in days))
    for words in (["pay"], ["even"], []):
        expected = [str(day) for day in reversed(days) if "even" not in words or day % 2 == 0]
        seen: list[str] = []
        before = None
        while rows := (await search(store, *words, before=before, limit=3)).rows:
            seen += [row.body for row in rows]
            before = rows[-1].number
        assert seen == expected
        times = {"since": AT + timedelta(days=30), "until": AT + timedelta(days=366)}
        page = await search(store, *words, **times)
        assert [row.body for row in page.rows] == [day for day in expected if 30 <= int(day) < 366]


@pytest.mark.parametrize("newest", [1, 5_000])
async def test_seen_words_are_found_in_new_and_old_rows(
    store: Store, monkeypatch: pytest.MonkeyPatch, newest: int
) -> None:
    monkeypatch.setattr(past_requests, "NEWEST", newest)
    await put(store, past(1, "pay old"), past(2, "pay new"), past(3, "gift other"), past(4, "pay new"))
    wanted = PastSearch((frozenset(("pay",)),))
    look = partial(find_seen, wanted=wanted, words=("old", "new", "other", "none"))
    assert await store.read(look) == {"old", "new"}
    assert await store.read(partial(find_seen, wanted=PastSearch((frozenset(),)), words=("old",))) == frozenset()
    assert await store.read(partial(find_seen, wanted=wanted, words=())) == frozenset()


async def test_long_time_without_requests_takes_few_queries(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_requests, "COUNTED", 2)
    monkeypatch.setattr(past_requests, "NEWEST", 1)
    later = AT + timedelta(days=2_400)
    await put(store, past(1, "pay"), past(2, "pay", at=later), past(3, "other", at=later + timedelta(days=1)))
    counted: list[PastSearch] = []
    count = past_requests._count

    def count_part(connection: Connection, wanted: PastSearch, *more: Any) -> int:
        counted.append(wanted)
        return count(connection, wanted, *more)

    monkeypatch.setattr(past_requests, "_count", count_part)
    assert await found(store, "pay") == ["2", "1"]
    assert len(counted) <= 10


async def test_many_old_rows_are_read_within_one_month(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_requests, "COUNTED", 2)
    monkeypatch.setattr(past_requests, "NEWEST", 1)
    old = [*range(0, 40, 4), 70, 75, 80, 160, 165]
    await put(store, *(past(day, at=AT + timedelta(days=day)) for day in old))
    await put(store, *(past(day, "other", at=AT + timedelta(days=day)) for day in range(200, 1_000, 40)))
    parts: list[int] = []
    months_before = past_requests._months_before

    def note_part(end: datetime, number: int) -> list[datetime]:
        parts.append(number)
        return months_before(end, number)

    monkeypatch.setattr(past_requests, "_months_before", note_part)
    for limit in (1, 2, 5, 100):
        seen: list[str] = []
        before = None
        while rows := (await search(store, "pay", before=before, limit=limit)).rows:
            seen += [row.body for row in rows]
            before = rows[-1].number
        assert seen == [str(day) for day in reversed(old)]
    parts.clear()
    await search(store, "pay", limit=1)
    assert parts in ([], [1, 2, 4, 8, 16, *6 * [2], 1, 1])


async def test_hostile_search_text_finds_only_its_words(store: Store) -> None:
    await put(store, past(1, "pay now"), past(2, "zebra"))
    for hostile in HOSTILE:
        words = words_of(hostile)
        expected = ["1"] if words and set(words) <= {"pay", "now"} else []
        assert (await found(store, *words) if words else []) == expected, hostile
    for hostile in HOSTILE:
        await put(store, past(3, hostile))
        assert await found(store, "zebra") == ["2"]
    assert await store.read(lambda connection: connection.scalar(select(func.count()).select_from(PAST_REQUESTS))) == 3
