"""Databases of every version are brought to the tables of this one."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text

from signoff.contracts.call import CallOutcome
from signoff.contracts.errors import ConfigError, StoreUnavailable
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


async def on(url: str, work: Any) -> Any:
    """`work` in one transaction on a database that no store has opened."""
    base = open_database(read_url(url), durable=False)
    try:
        return await base.run(work)
    finally:
        await base.close()


def difference(connection: Connection) -> list[Any]:
    """What alembic would have to change to make the database's tables those of METADATA."""
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "compare_type": True})
    return list(compare_metadata(context, METADATA))


def first_version(connection: Connection) -> None:
    """The tables as the version that counted no steps made them, with a ticket in them."""
    migrate(connection, VERSION_TABLE, STEPS[0])
    connection.exec_driver_sql(f"DROP TABLE {VERSION_TABLE}")
    connection.execute(
        text("INSERT INTO tickets VALUES ('k', 'w', 'c1.1', 't', '', 'done', :told, 1, 2)"),
        {"told": CallOutcome(call="c1.1", tool="t", code="ok").model_dump_json()},
    )


async def test_a_new_store_has_the_tables_of_this_version(store: Store) -> None:
    """Made at once, an empty database is at the last step and equal to METADATA."""
    step = await store.run(lambda connection: connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")))
    assert step == STEPS[-1]
    assert await store.run(difference) == []


async def test_all_steps_one_after_the_other_make_the_same_tables(store_url: str) -> None:
    """Migrations and METADATA agree, so that it does not matter with which version a store began."""

    def climb(connection: Connection) -> list[Any]:
        migrate(connection, VERSION_TABLE)
        return difference(connection)

    assert await on(store_url, climb) == []


async def test_a_store_without_a_step_is_adopted_with_its_rows(store_url: str) -> None:
    """What the version before migrations made is migrated in place; its tickets still count."""
    await on(store_url, first_version)
    async with open_store(store_url) as store:
        claim = await store.claim("k", workflow="w", call="c1.1", tool="t")
        assert (claim.kind, claim.outcome and claim.outcome.code) == ("done", "ok")
        assert await store.run(difference) == []
    async with open_store(store_url) as again:
        await again.check()


async def test_cards_that_were_to_be_reminded_of_still_are(store_url: str) -> None:
    """That was a kind of card once."""

    def second_last(connection: Connection) -> None:
        migrate(connection, VERSION_TABLE, "r0007")
        names = ["token", "tenant", "approval", "person", "channel", "address", "state", "vendor_id", "code", "message"]
        numbers = ["revision", "attempts", "claimed_until", "created_at", "changed_at"]
        values = dict.fromkeys(names, "'x'") | dict.fromkeys(numbers, "1")
        values |= {"kind": "'remind'", "handle": "'{}'", "request": "'{}'", "due_at": "7"}
        result = f"INSERT INTO deliveries ({', '.join(values)}) VALUES ({', '.join(values.values())})"
        connection.execute(text(result))

    await on(store_url, second_last)
    async with open_store(store_url) as store:
        found = await store.run(lambda c: c.execute(text("SELECT kind, remind_at FROM deliveries")).all())
        assert [tuple(row) for row in found] == [("ask", 7)]


async def test_what_waited_in_an_older_store_is_counted(store_url: str) -> None:
    """Not what an answer has settled or was asked anew; an answer that was voided settles nothing."""

    def before(connection: Connection) -> None:
        migrate(connection, VERSION_TABLE, "r0025")
        asked = "INSERT INTO questions VALUES (:of, :number, 'main', 's', 't', :code, '{}', 7, 9, NULL, NULL, NULL)"
        answered = "INSERT INTO answers VALUES (:of, 1, :number, 'ana', :of, '{}', :settles, 8, NULL, :voided)"
        rows = [("waits", 1), ("settled", 1), ("voided", 1), ("counted", 1), ("anew", 1), ("anew", 2)]
        for place, (name, number) in enumerate(rows):
            connection.execute(text(asked), {"of": name, "number": number, "code": f"C{place}"})
        for name, settles, voided in (("settled", True, None), ("voided", True, 8), ("counted", False, None)):
            values = {"of": name, "number": 1, "settles": settles, "voided": voided}
            connection.execute(text(answered), values)

    await on(store_url, before)
    async with open_store(store_url) as store:
        unsettled = "SELECT approval, revision FROM questions WHERE settled_at IS NULL ORDER BY approval"
        found = await store.run(lambda connection: connection.execute(text(unsettled)).all())
        assert [tuple(row) for row in found] == [("anew", 2), ("counted", 1), ("voided", 1), ("waits", 1)]


async def test_openers_at_the_same_time_migrate_once(store_url: str) -> None:
    """Twelve openers of an old database all get a working store."""
    await on(store_url, first_version)
    stores = await asyncio.gather(*(Store.open(store_url) for _ in range(12)))
    assert [await store.run(difference) for store in stores] == [[]] * 12
    for store in stores:
        await store.check()
        await store.close()


async def test_a_failed_step_leaves_the_database_as_it_was(sqlite_url: str) -> None:
    """Table changes are taken back together: there is no store between two versions."""

    def blocked(connection: Connection) -> None:
        connection.exec_driver_sql("CREATE TABLE blobs (sha256 VARCHAR(64) PRIMARY KEY)")
        connection.exec_driver_sql("CREATE INDEX tickets ON blobs (sha256)")

    await on(sqlite_url, blocked)
    with pytest.raises(StoreUnavailable):
        await Store.open(sqlite_url)
    names = await on(sqlite_url, lambda c: c.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'")).all())
    assert [name for (name,) in names] == ["blobs"]


async def test_a_store_of_a_newer_version_is_left_alone(store_url: str) -> None:
    """An old program beside a new one stops with the remedy instead of writing what it does not understand."""
    await (await Store.open(store_url)).close()
    await on(store_url, lambda c: c.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = 'r9999'")).close())
    with pytest.raises(ConfigError, match=r"newer version \(`r9999`\).*install the newer one"):
        await Store.open(store_url)


def test_steps_are_numbered_without_gaps() -> None:
    """The last step is the one with the highest number, and no two have the same."""
    assert [f"r{number:04}" for number in range(1, len(STEPS) + 1)] == list(STEPS)


def test_making_a_store_is_quick(tmp_path: Path) -> None:
    """A new SQLite store costs no import of alembic and less than 150 ms of this process."""
    done = subprocess.run(
        [sys.executable, "-c", _TIMED, f"sqlite:///{tmp_path}/store.db"], capture_output=True, text=True, check=True
    )
    seconds, imported = done.stdout.split()
    assert imported == "False"
    assert float(seconds) < 0.15
