import sqlite3
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from some import some
from store_fixtures import postgres_server, postgres_url

from signoff.contracts.errors import ConfigError
from signoff.contracts.person import Principal
from signoff.contracts.preview import Diff, Sql
from signoff.keys.secrets import SecretProvider
from signoff.registry.capabilities import CapabilityError
from signoff.registry.hooks import HookContext
from signoff.tools import preview_file_write, preview_sql

__all__ = ["postgres_server", "postgres_url"]
CONTEXT = HookContext(
    tenant="main",
    user=Principal(user="guest", tenant="main"),
    actor="desk",
    session="s",
    turn="t",
    channel="",
    route="",
    step="",
    context={},
    data={},
)


async def file_diff(folder: Path, path: str, text: str = "new\n") -> Diff:
    found = await preview_file_write(str(folder))({"path": path, "text": text}, CONTEXT)
    assert isinstance(found, Diff)
    return found


async def plan(url: str, statement: str) -> str:
    preview = preview_sql("env:REPORTS", secrets=SecretProvider(environment={"REPORTS": url}))
    found = await preview({"statement": statement}, CONTEXT)
    assert isinstance(found, Sql)
    assert found.statement == statement
    return found.plan


async def test_file_write_is_shown_as_a_difference(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old\n")
    found = await file_diff(tmp_path, f"{tmp_path}/a.txt")
    assert (found.name, found.before, found.after) == ("file", "old\n", "new\n")
    assert (await file_diff(tmp_path, f"{tmp_path}/b.txt")).before == ""


async def test_file_outside_the_folder_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("4711")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    for path in ("link.txt", "../secret.txt"):
        with pytest.raises(CapabilityError):
            await file_diff(folder, f"{folder}/{path}")


def make_sqlite(tmp_path: Path) -> tuple[str, Path]:
    path = tmp_path / "reports.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE invoices (id INTEGER PRIMARY KEY, paid INTEGER)")
        connection.execute("INSERT INTO invoices VALUES (1, 0)")
    connection.close()
    return f"sqlite:///{path}", path


async def test_plan_of_sqlite_runs_nothing(tmp_path: Path) -> None:
    url, path = make_sqlite(tmp_path)
    assert "SCAN invoices" in await plan(url, "SELECT * FROM invoices WHERE paid = 0")
    assert await plan(url, "DELETE FROM invoices WHERE id = 1")
    for several in ("SELECT 1; DELETE FROM invoices", "DELETE FROM invoices; COMMIT"):
        with pytest.raises(sqlite3.Error):
            await plan(url, several)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM invoices").fetchone() == (1,)
    connection.close()


async def test_plan_of_postgresql_runs_nothing(postgres_url: str) -> None:
    admin = await asyncpg.connect(postgres_url)
    try:
        await admin.execute("CREATE TABLE invoices (id INT PRIMARY KEY, paid BOOL)")
        await admin.execute("INSERT INTO invoices VALUES (1, false)")
        assert "Seq Scan on invoices" in await plan(postgres_url, "SELECT * FROM invoices WHERE NOT paid")
        assert "Delete on invoices" in await plan(postgres_url, "DELETE FROM invoices")
        hostile = (
            "SELECT 1; DELETE FROM invoices",
            "SELECT 1; COMMIT; DELETE FROM invoices",
            "ANALYZE DELETE FROM invoices",
            "(ANALYZE) DELETE FROM invoices",
        )
        for statement in hostile:
            with pytest.raises(asyncpg.PostgresError):
                await plan(postgres_url, statement)
        assert await admin.fetchval("SELECT count(*) FROM invoices") == 1
    finally:
        await admin.close()


def test_literal_address_of_a_database_is_refused() -> None:
    with pytest.raises(ConfigError, match="reference"):
        preview_sql("postgresql://reader:4711@db/reports")


async def test_plan_that_takes_too_long_is_cancelled(postgres_url: str) -> None:
    slow: Any = some(await asyncpg.connect(postgres_url))
    try:
        # The planner evaluates an immutable function of constants.
        await slow.execute(
            "CREATE FUNCTION slow(INT) RETURNS INT LANGUAGE plpgsql IMMUTABLE AS"
            " $$ BEGIN PERFORM pg_sleep(30); RETURN 1; END $$"
        )
        with pytest.raises(asyncpg.QueryCanceledError):
            await plan(postgres_url, "SELECT slow(1)")
    finally:
        await slow.close()
