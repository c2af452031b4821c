import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text

from signoff.contracts.errors import ConfigError, StoreUnavailable
from signoff.store import migrations, upgrade
from signoff.store.database import open_database, read_url
from signoff.store.migrations import migrate
from signoff.store.store import Store, open_store
from signoff.store.tables import METADATA
from signoff.store.upgrade import STEPS, VERSION_TABLE

_TIMED = """
import asyncio, sys, time
from signoff.store.store import Store
async def main():
    began = time.process_time()
    await (await Store.open(sys.argv[1])).close()
    print(time.process_time() - began, "alembic" in sys.modules)
asyncio.run(main())
"""
_NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "{name}"
down_revision = "{before}"


def upgrade() -> None:
    table = op.create_table("pigeons", sa.Column("name", sa.String(64), primary_key=True))
    op.bulk_insert(table, [{{"name": "first"}}])
"""


async def on(url: str, work: Any) -> Any:
    base = open_database(read_url(url), durable=False)
    try:
        return await base.run(work)
    finally:
        await base.close()


def difference(connection: Connection) -> list[Any]:
    def is_comparable(thing: Any, name: str | None, *about: Any) -> bool:
        # SQLite's full-text index keeps its own tables instead of an index.
        return connection.dialect.name != "sqlite" or not str(name).startswith(("past_words", "past_requests_words"))

    opts = {"version_table": VERSION_TABLE, "compare_type": True, "include_object": is_comparable}
    context = MigrationContext.configure(connection, opts=opts)
    return list(compare_metadata(context, METADATA))


@pytest.fixture
def next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "migrations"
    shutil.copytree(migrations.FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    name = f"r{len(STEPS) + 1:04}"
    (folder / "versions" / f"{name}_pigeons.py").write_text(_NEXT.format(name=name, before=STEPS[-1]))
    monkeypatch.setattr(migrations, "FOLDER", folder)
    monkeypatch.setattr(upgrade, "STEPS", (*STEPS, name))
    return name


def pigeons(connection: Connection) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in connection.execute(text("SELECT name FROM pigeons"))]


async def test_new_store_has_the_tables_of_this_version(store: Store) -> None:
    step = await store.run(lambda connection: connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")))
    assert step == STEPS[-1]
    assert await store.run(difference) == []


async def test_all_migration_steps_together_make_the_same_tables(store_url: str) -> None:

    def climb(connection: Connection) -> list[Any]:
        migrate(connection, VERSION_TABLE)
        return difference(connection)

    assert await on(store_url, climb) == []


_TRIGGERS = {
    "sqlite": "SELECT sql FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": "SELECT pg_get_triggerdef(t.oid) || pg_get_functiondef(t.tgfoid) FROM pg_trigger t",
}
_NUMBER_OF_TRIGGERS = {"sqlite": 5, "postgresql": 2}


async def test_all_migration_steps_together_make_the_same_triggers(store_url: str) -> None:
    def triggers(connection: Connection) -> list[str]:
        return [" ".join(each.split()) for each in connection.scalars(text(_TRIGGERS[connection.dialect.name]))]

    def climb(connection: Connection) -> list[str]:
        migrate(connection, VERSION_TABLE)
        return triggers(connection)

    def drop(connection: Connection) -> None:
        if connection.dialect.name == "postgresql":
            connection.execute(text("DROP SCHEMA public CASCADE"))
            connection.execute(text("CREATE SCHEMA public"))

    async with open_store(store_url) as store:
        created = await store.run(triggers)
    await on(store_url, drop)
    url = store_url if store_url.startswith("postgresql") else f"{store_url}.steps"
    assert len(created) == _NUMBER_OF_TRIGGERS[store_url.partition(":")[0]]
    assert sorted(await on(url, climb)) == sorted(created)


async def test_older_store_takes_the_missing_step_and_keeps_its_rows(store_url: str, next_step: str) -> None:
    await on(store_url, lambda connection: migrate(connection, VERSION_TABLE, STEPS[-1]))
    async with open_store(store_url) as store:
        assert await store.run(pigeons) == [("first",)]
        step = await store.run(lambda connection: connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")))
        assert step == next_step


async def test_concurrent_openers_of_an_older_store_migrate_it_once(store_url: str, next_step: str) -> None:
    await on(store_url, lambda connection: migrate(connection, VERSION_TABLE, STEPS[-1]))
    stores = await asyncio.gather(*(Store.open(store_url) for _ in range(12)))
    assert [await store.run(pigeons) for store in stores] == [[("first",)]] * 12
    for store in stores:
        await store.check()
        await store.close()


async def test_failed_migration_step_leaves_the_database_unchanged(sqlite_url: str) -> None:
    def blocked(connection: Connection) -> None:
        connection.exec_driver_sql("CREATE TABLE tickets (key VARCHAR(80) PRIMARY KEY)")

    await on(sqlite_url, blocked)
    with pytest.raises(StoreUnavailable):
        await Store.open(sqlite_url)
    names = await on(sqlite_url, lambda c: c.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'")).all())
    assert [name for (name,) in names] == ["tickets"]


async def test_store_of_a_newer_version_is_refused(store_url: str) -> None:
    await (await Store.open(store_url)).close()
    await on(store_url, lambda c: c.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = 'r9999'")).close())
    with pytest.raises(ConfigError, match=r"newer version \(`r9999`\).*install the newer one"):
        await Store.open(store_url)


def test_migration_steps_are_numbered_without_gaps() -> None:
    assert [f"r{number:04}" for number in range(1, len(STEPS) + 1)] == list(STEPS)


def test_store_is_created_in_under_150_milliseconds(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _TIMED, f"sqlite:///{tmp_path}/store.db"], capture_output=True, text=True, check=True
    )
    seconds, imported = done.stdout.split()
    assert imported == "False"
    assert float(seconds) < 0.15
