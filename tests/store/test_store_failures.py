import asyncio
import sqlite3
import stat
import traceback
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest
from sqlalchemy import text
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from tables import table

from signoff.contracts.errors import ConfigError, StoreUnavailable
from signoff.store import database
from signoff.store.store import Store, open_store

WHO = {"workflow": "turn/main/s/t", "call": "c1.1", "tool": "book_flight"}


def summary(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


async def drop_tickets(url: str) -> None:
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.execute("DROP TABLE tickets")
        connection.close()
        return
    admin = await asyncpg.connect(url)
    await admin.execute("DROP TABLE tickets")
    await admin.close()


async def test_lost_table_is_an_unavailable_store(store: Store, store_url: str) -> None:
    await store.check()
    await drop_tickets(store_url)
    with pytest.raises(StoreUnavailable) as ready:
        await store.check()
    with pytest.raises(StoreUnavailable) as claimed:
        await store.claim("secret-key", **WHO)
    for error in (ready.value, claimed.value):
        assert "INSERT" not in summary(error)
        assert "SELECT" not in summary(error)
        assert "secret-key'" not in summary(error)
        assert "\n" not in str(error)


@pytest.mark.parametrize("url", ["postgresql://me:hunter2@127.0.0.1:1/signoff"])
async def test_unreachable_server_error_hides_the_password(url: str) -> None:
    with pytest.raises(StoreUnavailable, match=r"`signoff` at `127\.0\.0\.1`") as failed:
        await Store.open(url)
    assert "hunter2" not in summary(failed.value)


@pytest.mark.postgres
async def test_missing_database_is_an_unavailable_store(postgres_server: str) -> None:
    with pytest.raises(StoreUnavailable, match="`nowhere`"):
        await Store.open(f"{postgres_server}/nowhere")


@pytest.mark.postgres
async def test_lost_connections_are_replaced(postgres_url: str) -> None:
    async with open_store(postgres_url) as store:
        await asyncio.gather(*(store.check() for _ in range(5)))
        admin = await asyncpg.connect(postgres_url)
        dropped = await admin.fetch(
            "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND datname = current_database() AND backend_type = 'client backend'"
        )
        assert len(dropped) == 5
        while any(psutil.pid_exists(each["pid"]) for each in dropped):
            await asyncio.sleep(0.01)
        await admin.close()
        assert (await store.claim("k", **WHO)).kind == "fresh"


@pytest.mark.postgres
async def test_only_idle_connections_are_pinged(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A ping per transaction took three of its five round trips. An idle connection is pinged and replaced: a lost
    # network closes nothing.
    asked: list[bool] = []

    def ping(dialect: Any, connection: Any) -> bool:
        asked.append(True)
        return len(asked) > 1

    monkeypatch.setattr(PGDialect_asyncpg, "do_ping", ping)
    monkeypatch.setattr(database, "PING_SECONDS", 1_000.0)
    async with open_store(postgres_url) as store:
        query = text("SELECT pg_backend_pid()")
        pids = [await store.run(lambda connection: connection.scalar(query)) for _ in range(5)]
        assert (len(set(pids)), asked) == (1, [])
        monkeypatch.setattr(database, "PING_SECONDS", 0.0)
        assert await store.run(lambda connection: connection.scalar(query)) not in pids
        assert asked == [True]
        await store.run(lambda connection: connection.scalar(query))
        assert len(asked) == 2


@pytest.mark.usefixtures("threads_end")
async def test_non_database_file_is_an_unavailable_store(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, " * 100)
    with pytest.raises(StoreUnavailable, match=r"notes\.txt"):
        await Store.open(f"sqlite:///{tmp_path}/notes.txt")
    assert (tmp_path / "notes.txt").read_text().startswith("not a database")


@pytest.mark.usefixtures("threads_end")
async def test_store_that_fails_to_create_its_tables_leaves_no_thread(sqlite_url: str) -> None:
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as connection:
        connection.execute("CREATE TABLE taken (a)")
        connection.execute("CREATE INDEX tickets ON taken (a)")
    connection.close()
    with pytest.raises(StoreUnavailable):
        await Store.open(sqlite_url)


async def test_directory_as_database_file_is_an_unavailable_store(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await Store.open(f"sqlite:///{tmp_path}")


async def test_unreadable_ticket_is_an_unavailable_store(sqlite_url: str) -> None:
    async with open_store(sqlite_url) as store:
        await store.claim("k", **WHO)
        with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as connection:
            connection.execute("UPDATE tickets SET state = 'done', outcome = '{'")
        connection.close()
        with pytest.raises(StoreUnavailable):
            await store.claim("k", **WHO)


def take_away(file: Path, aside: Path, *, replaced: bool) -> None:
    file.replace(aside)
    if replaced:
        file.touch()


@pytest.mark.parametrize("replaced", [False, True])
async def test_file_removed_while_open_is_an_unavailable_store(sqlite_url: str, tmp_path: Path, replaced: bool) -> None:
    file, aside = Path(sqlite_url.removeprefix("sqlite:///")), tmp_path / "aside"
    async with open_store(sqlite_url) as store:
        await store.claim("first", **WHO)
        take_away(file, aside, replaced=replaced)
        for attempt in (store.check(), store.claim("second", **WHO)):
            with pytest.raises(StoreUnavailable, match="was removed or replaced: stop and start `signoff dev`"):
                await attempt
        take_away(aside, file, replaced=False)
        await store.check()
        assert await store.read_ticket("second") is None
        assert (await store.claim("first", **WHO)).kind == "open"


async def test_writer_waits_for_another_process(sqlite_url: str) -> None:
    async with open_store(sqlite_url) as store:
        other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        asyncio.get_running_loop().call_later(0.1, other.execute, "ROLLBACK")
        assert (await store.claim("k", **WHO)).kind == "fresh"
        other.close()


@pytest.mark.parametrize(("durable", "synchronous"), [(False, 1), (True, 2)])
async def test_sqlite_is_opened_with_wal_and_the_chosen_durability(
    sqlite_url: str, durable: bool, synchronous: int
) -> None:
    names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
    async with open_store(sqlite_url, durable=durable) as store:
        found = await store.run(lambda c: [c.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names])
    assert found == ["wal", synchronous, 1, 100]


async def test_database_file_is_readable_only_by_its_owner(sqlite_url: str) -> None:
    async with open_store(sqlite_url):
        path = Path(sqlite_url.removeprefix("sqlite:///"))
        for file in path.parent.glob(path.name + "*"):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600


@table(
    ("url", "remedy"),
    ("mysql://me:hunter2@db/x", "`mysql`"),
    ("hunter2", "not a URL"),
    ("postgresql://me:hunter2@db:port/x", "not a URL"),
    ("sqlite://", "names no file"),
    ("sqlite:///:memory:", "names no file"),
    ("sqlite:////nowhere/at/all/hunter.db", "`/nowhere/at/all` of store_url does not exist; create it"),
)
async def test_invalid_store_url_is_a_config_error(url: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=remedy) as failed:
        await Store.open(url)
    assert "hunter2" not in summary(failed.value)
