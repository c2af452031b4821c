"""Notices of requests, on every database."""

import asyncio
import contextlib
import sqlite3
from datetime import timedelta

from channel_kit import a_request
from sqlalchemy import update

from signoff.store.notices import Notices, notice_key
from signoff.store.schema import NOTICES
from signoff.store.store import Store, open_store


async def test_a_notice_is_kept_once(store: Store) -> None:
    """Whoever puts it again changes nothing, also once it is done."""
    notices = Notices(store)
    key = notice_key(a_request(), "opened")
    assert key == "main.s.t.c1.1:1:opened:1"
    assert [await notices.put(key, "main", "opened", a_request()) for _ in range(2)] == [True, False]
    (row,) = await notices.claim(9)
    assert (row.key, row.tenant, row.event, row.request, row.attempts) == (key, "main", "opened", a_request(), 1)
    await notices.done(key)
    assert await notices.put(key, "main", "opened", a_request()) is False
    await notices.later(key, 0)
    assert await notices.claim(9) == []


async def test_a_claimed_notice_comes_back(store: Store) -> None:
    """At the time that its claimer said, or once the claimer's minute is over."""
    notices = Notices(store)
    await notices.put("k", "main", "closed", a_request(state="denied"))
    await notices.claim(9)
    assert await notices.claim(9) == []
    await notices.later("k", 60)
    assert await notices.claim(9) == []
    await notices.later("k", 0)
    (row,) = await notices.claim(9)
    assert (row.attempts, row.request.state) == (2, "denied")
    over = update(NOTICES).values(claimed_until=0)
    await store.run(lambda connection: connection.execute(over).close())
    assert len(await notices.claim(9)) == 1


async def test_notices_are_shared_in_order(store_url: str) -> None:
    """The oldest first, and each to one of those who claim at once."""
    stores = [await Store.open(store_url) for _ in range(2)]
    for number in range(20):
        await Notices(stores[0]).put(f"k{number:02}", "main", "opened", a_request())
    first = await Notices(stores[1]).claim(5)
    assert [row.key for row in first] == [f"k{number:02}" for number in range(5)]
    found = await asyncio.gather(*(Notices(stores[at % 2]).claim(5) for at in range(4)))
    found.append(await Notices(stores[0]).claim(20))
    assert sorted(row.key for rows in found for row in rows) == [f"k{number:02}" for number in range(5, 20)]
    for store in stores:
        await store.close()


async def test_a_notice_is_known_by_its_key(store: Store) -> None:
    """So one who plans cards late learns that the request was closed meanwhile."""
    notices = Notices(store)
    await notices.put("k", "main", "closed", a_request())
    row = await notices.look("k")
    assert row is not None
    assert (row.event, row.attempts, row.done_at) == ("closed", 0, None)
    await notices.done("k")
    row = await notices.look("k")
    assert row is not None
    assert row.done_at is not None
    assert await notices.look("other") is None


async def test_what_is_done_is_forgotten_in_time(store: Store) -> None:
    """What is not done never is."""
    notices = Notices(store)
    for key in ("done", "open"):
        await notices.put(key, "main", "opened", a_request())
    await notices.done("done")
    assert await notices.sweep(timedelta(days=30)) == 0
    assert await notices.sweep(timedelta(seconds=-1)) == 1
    assert [row.key for row in await notices.claim(9)] == ["open"]


async def test_a_notice_that_cannot_be_read_holds_up_no_other(store: Store) -> None:
    """As of a newer version: it is set aside for a while, and is not lost."""
    notices = Notices(store)
    for key in ("odd", "right"):
        await notices.put(key, "main", "opened", a_request())
    odd = update(NOTICES).where(NOTICES.c.key == "odd").values(body='{"id": "x"}', due_at=0)
    await store.run(lambda connection: connection.execute(odd).close())
    assert [row.key for row in await notices.claim(9)] == ["right"]
    assert await notices.look("odd") is None
    free = update(NOTICES).values(claimed_until=0)
    await store.run(lambda connection: connection.execute(free).close())
    assert [row.key for row in await notices.claim(1)] == ["right"]
    later = update(NOTICES).where(NOTICES.c.key == "odd").values(body=a_request().model_dump_json(), due_at=0)
    await store.run(lambda connection: connection.execute(later).close())
    assert [row.key for row in await notices.claim(9)] == ["odd"]


async def test_who_finds_nothing_waits_for_nobody(sqlite_url: str) -> None:
    """A queue is looked at twice a second: while somebody writes it is found empty all the same."""
    async with open_store(sqlite_url) as store:
        writer = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
        with contextlib.closing(writer):
            writer.execute("BEGIN IMMEDIATE")
            assert await asyncio.wait_for(Notices(store).claim(9), 5) == []
