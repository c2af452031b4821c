"""A store's mark differs after another process has committed."""

import asyncio
from collections.abc import AsyncIterator, Hashable

import pytest
from polling import pauses
from sqlalchemy import text

from signoff.contracts.ids import TurnKey
from signoff.store.change_notices import CHANNEL, ECHO_SECONDS, note_change
from signoff.store.database import PostgresDatabase
from signoff.store.questions.turn_stamps import TurnStamp, TurnStamps
from signoff.store.store import Store, open_store


@pytest.fixture
async def other(store_url: str, store: Store) -> AsyncIterator[Store]:
    async with open_store(store_url) as opened:
        yield opened


async def changed(store: Store, before: Hashable) -> Hashable:
    for pause in pauses():
        mark = await store.change_mark()
        if mark != before:
            return mark
        await asyncio.sleep(pause)
    raise AssertionError("pauses never end")


async def hearing(store: Store) -> PostgresDatabase:
    database = store._base
    assert isinstance(database, PostgresDatabase)
    for _ in pauses():
        if await store.hears_changes():
            return database
    raise AssertionError("pauses never end")


async def test_commit_of_another_process_changes_the_mark(store: Store, other: Store) -> None:
    if store.dialect == "postgresql":
        await hearing(store)
    before = await store.change_mark()
    await other.run(lambda connection: (note_change(connection), connection.execute(text("DELETE FROM probes"))))
    await other.check()
    assert await changed(store, before) != before


async def test_own_commit_changes_the_mark(store: Store) -> None:
    if store.dialect == "postgresql":
        await hearing(store)
    before = await store.change_mark()
    await store.check()
    await store.run(note_change)
    assert await changed(store, before) != before


async def test_mark_of_an_unchanged_sqlite_store_stays(sqlite_url: str) -> None:
    async with open_store(sqlite_url) as store:
        marks = {await store.change_mark() for _ in range(20)}
    assert len(marks) == 1


@pytest.mark.postgres
async def test_listener_is_back_after_its_connection_is_killed(postgres_url: str) -> None:
    async with open_store(postgres_url) as store, open_store(postgres_url) as other:
        database = await hearing(store)
        killing = text(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            f"WHERE query LIKE 'LISTEN%{CHANNEL}%' AND pid <> pg_backend_pid() AND datname = current_database()"
        )
        assert await other.run(lambda connection: connection.scalar(killing)) == 1
        before = await store.change_mark()
        # A look at once after the connection is back finds changes that no notice told.
        await changed(store, before)
        assert await hearing(store) is database
        before = await store.change_mark()
        await other.run(note_change)
        await changed(store, before)


@pytest.mark.postgres
async def test_mark_of_a_deaf_listener_changes_each_second(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a pooler, where no notice arrives."""
    monkeypatch.setattr("signoff.store.change_notices.ECHO_SECONDS", ECHO_SECONDS / 10)
    async with open_store(postgres_url) as store:
        database = store._base
        assert isinstance(database, PostgresDatabase)
        monkeypatch.setattr(database.notices, "_hear", lambda *_: None)
        first = await store.change_mark()
        second = await changed(store, first)
        await changed(store, second)
        assert not await store.hears_changes()


@pytest.mark.postgres
async def test_commit_during_a_sending_sends_a_further_notice(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(postgres_url) as store:
        database = store._base
        assert isinstance(database, PostgresDatabase)
        begun, released, sent = asyncio.Event(), asyncio.Event(), 0

        async def send() -> None:
            nonlocal sent
            sent += 1
            begun.set()
            await released.wait()

        monkeypatch.setattr(database.notices, "_send", send)
        await store.run(note_change)
        await begun.wait()
        await store.run(note_change)
        released.set()
    assert sent == 2


async def test_turns_without_rows_have_the_empty_stamp(store: Store) -> None:
    turns = [TurnKey("main", "s", f"t{number}") for number in range(1_200)]
    assert await TurnStamps(store).read(turns) == dict.fromkeys(turns, TurnStamp())
