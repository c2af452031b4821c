from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import select
from store_roles import RoleUrls, given_roles, made_roles, sql, store_command
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.contracts.ids import SessionKey
from signoff.store import content_store, request_reader, store, truncated_results
from signoff.store.completions import Completions
from signoff.store.questions.questions import Questions
from signoff.store.roles import NOTHING, PROCESS_ROLES, RIGHTS, WORKER_KEYS, readable_tables, statements
from signoff.store.store import open_store
from signoff.store.tables import METADATA, QUESTION_READERS
from signoff.testing.builders import a_question

ROLES = ("worker", "gateway")


@pytest.fixture
async def urls(postgres_server: str, tmp_path: Path) -> RoleUrls:
    found = await made_roles(postgres_server)
    await given_roles(found, tmp_path)
    return found


@table("role", *ROLES)
def test_every_table_has_rights_for_each_role(role: str) -> None:
    """A missing entry would stop a process in production."""
    assert {name: set(rights) for name, rights in RIGHTS.items()}[role] == set(METADATA.tables)


def test_rights_name_only_existing_columns_and_keys() -> None:
    for rights in RIGHTS.values():
        for name, each in rights.items():
            assert each.update <= set(METADATA.tables[name].columns.keys())
    assert set(WORKER_KEYS) == {request_reader.MARK_KEY, content_store.KEY, truncated_results.KEY, store.STORE_ID}


def test_worker_has_no_rights_on_sign_in_and_channel_tables() -> None:
    own = ("tokens", "sessions", "deliveries", "arrivals", "footers", "own_messages", "contacts", "opened_values")
    for name in own:
        assert RIGHTS["worker"][name] == NOTHING
    assert not any(RIGHTS["worker"][name].insert for name in ("answers", "freezes", "people", "keys"))
    assert {table.name for table in readable_tables("worker")} == {
        name for name, rights in RIGHTS["worker"].items() if rights.select
    }
    assert readable_tables("owner") == METADATA.sorted_tables


def test_role_names_are_quoted() -> None:
    made = statements({"worker": 'w"; DROP', "gateway": "Gate way"}, schema="s", database="d", version_table="v")
    assert all('"w""; DROP"' in each or 'w"; DROP' not in each for each in made)
    assert any('"Gate way"' in each for each in made)


@pytest.mark.postgres
async def test_store_knows_its_role_and_is_ready_under_it(urls: RoleUrls) -> None:
    found: dict[str, Any] = {}
    for role in ("owner", *ROLES):
        async with open_store(getattr(urls, role)) as opened:
            await opened.check()
            found[role] = (opened.role, opened.id)
    assert [each[0] for each in found.values()] == ["owner", "worker", "gateway"]
    assert len({each[1] for each in found.values()}) == 1


@pytest.mark.postgres
async def test_repeated_grant_of_roles_changes_nothing(urls: RoleUrls, tmp_path: Path) -> None:
    await given_roles(urls, tmp_path)
    words = ("roles", "--worker", urls.names["worker"], "--gateway", urls.names["gateway"], "--print")
    code, script = await store_command(urls.owner, tmp_path, *words)
    assert (code, script.splitlines()[0]) == (0, "BEGIN;")
    await sql(urls.owner, script)
    for role in PROCESS_ROLES:
        async with open_store(getattr(urls, role)) as opened:
            assert opened.role == role


@pytest.mark.postgres
@pytest.mark.parametrize("role", ROLES)
async def test_process_roles_cannot_create_or_change_tables(urls: RoleUrls, role: str) -> None:
    other = urls.names["gateway" if role == "worker" else "worker"]
    for each in (
        "CREATE TABLE mine (a int)",
        "CREATE TEMPORARY TABLE answers (a int)",
        "CREATE SCHEMA mine",
        "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "ALTER TABLE answers ADD COLUMN mine int",
        "ALTER TABLE keys DISABLE ROW LEVEL SECURITY",
        "DROP TABLE answers",
        "TRUNCATE answers",
        "CREATE TRIGGER mine BEFORE INSERT ON answers EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "UPDATE signoff_version SET version_num = 'r9999'",
        f"SET ROLE {other}",
        f"SET ROLE {urls.names['owner']}",
    ):
        with pytest.raises((asyncpg.InsufficientPrivilegeError, asyncpg.WrongObjectTypeError)):
            await sql(getattr(urls, role), each)
    # PostgreSQL only warns about this statement.
    await sql(getattr(urls, role), f"GRANT ALL ON answers TO {urls.names[role]}")
    async with open_store(getattr(urls, role)) as opened:
        assert opened.role == role


@pytest.mark.postgres
async def test_worker_drops_old_replies_and_gateway_cannot_read_them(urls: RoleUrls) -> None:
    """The worker needs row locks on rows that it may not change otherwise."""
    async with open_store(urls.worker) as opened:
        kept = Completions(opened)
        await kept.keep("old", 1, b"reply", SessionKey("main", "s"))
        await sql(urls.owner, "UPDATE completions SET kept_at = kept_at - 3601000")
        await kept.keep("run", 1, b"reply", SessionKey("main", "s"))
        await sql(urls.owner, "UPDATE completions SET kept_at = kept_at - 3601000 WHERE key = 'run.1'")
        await kept.drop_old()
        assert await kept.read("old", 1) is None
        assert await kept.read("run", 1) is None
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await sql(urls.gateway, "SELECT body FROM completions")


MOVED = """
    INSERT INTO questions
    SELECT approval, revision + 1, tenant, session, turn, code, body, opened_at, last_at, 1, NULL, NULL, NULL
    FROM questions
"""
"""A revision with a moved deadline."""


@pytest.mark.postgres
async def test_question_that_a_worker_ends_is_over_for_its_readers(urls: RoleUrls) -> None:
    asked = a_question(approvers=("role:finance",))
    over = select(QUESTION_READERS.c.over_at.is_not(None))
    async with open_store(urls.worker) as opened, open_store(urls.gateway) as gateway:
        await Questions(opened).ask(asked, b"{}")
        assert await gateway.read(lambda connection: connection.scalars(over).all()) == [False, False]
        await Questions(opened).end(asked.id, 1, "cancelled")
        assert await gateway.read(lambda connection: connection.scalars(over).all()) == [True, True]
    for statement in ("SELECT 1 FROM question_readers", "UPDATE question_readers SET over_at = NULL",
                      "DELETE FROM question_readers", "UPDATE questions SET asked_at = 0",
                      "UPDATE questions SET last_at = 0", MOVED):  # fmt: skip
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await sql(urls.worker, statement)


@pytest.mark.postgres
async def test_outdated_store_is_refused_in_one_sentence(postgres_server: str, tmp_path: Path) -> None:
    found = await made_roles(postgres_server)
    with pytest.raises(ConfigError, match="run `signoff store migrate`, then `signoff store roles`"):
        await store.Store.open(found.worker)
    assert await store_command(found.owner, tmp_path, "migrate") == (
        0, f"the store's tables are of the version {_newest()}\n",
    )  # fmt: skip
    with pytest.raises(ConfigError, match="was given nothing in the store: run `signoff store roles`"):
        await store.Store.open(found.worker)
    await given_roles(found, tmp_path)
    await sql(found.owner, "UPDATE signoff_version SET version_num = 'r0000'")
    with pytest.raises(ConfigError, match=r"version `r0000`, this program's of `.*run `signoff store migrate`"):
        await store.Store.open(found.gateway)


@pytest.mark.postgres
@pytest.mark.parametrize("given", ["GRANT INSERT ON answers TO", "REVOKE SELECT ON answers FROM"])
async def test_wrong_rights_stop_a_process_at_start(urls: RoleUrls, given: str) -> None:
    await sql(urls.owner, f"{given} {urls.names['worker']}")
    with pytest.raises(ConfigError, match=r"lacks the rights of this version's worker \(table `answers`\)"):
        await store.Store.open(urls.worker)


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("ALTER ROLE {worker} SUPERUSER", "is a superuser"),
        ("ALTER ROLE {worker} BYPASSRLS", "bypasses row-level security"),
        ("ALTER ROLE {gateway} CREATEROLE", "may create roles"),
        ("GRANT {gateway} TO {worker}", "may do more with the table"),
        ("GRANT {owner} TO {gateway}", "may create tables"),
        ("GRANT pg_write_all_data TO {worker}", "may do more with the table"),
        ("GRANT pg_execute_server_program TO {worker}", "reaches the server's files and programs"),
        ("ALTER ROLE {worker} NOINHERIT; GRANT {gateway} TO {worker}", "may do more with the table"),
    ],
)
async def test_role_with_additional_powers_is_refused(
    urls: RoleUrls, postgres_server: str, tmp_path: Path, made: str, message: str
) -> None:
    await sql(f"{postgres_server}/postgres", made.format(**urls.names))
    words = ("roles", "--worker", urls.names["worker"], "--gateway", urls.names["gateway"])
    code, out = await store_command(urls.owner, tmp_path, *words)
    assert (code, message in out) == (1, True), out


@pytest.mark.postgres
async def test_invalid_roles_are_refused(urls: RoleUrls, tmp_path: Path) -> None:
    worker, gateway, owner = (urls.names[each] for each in ("worker", "gateway", "owner"))
    for url, one, two, message in (
        (urls.owner, worker, worker, "must be three"),
        (urls.owner, owner, gateway, "must be three"),
        (urls.owner, "nobody_here", gateway, 'CREATE ROLE "nobody_here" LOGIN PASSWORD'),
        (urls.gateway, worker, gateway, "is a gateway's address: this takes that of the tables' owner"),
        (f"sqlite:///{tmp_path}/s.db", worker, gateway, "SQLite has no roles"),
    ):
        code, out = await store_command(url, tmp_path, "roles", "--worker", one, "--gateway", two)
        assert (code, message in out) == (1, True), out


def _newest() -> str:
    return max(file.stem.partition("_")[0] for file in Path(store.__file__).parent.glob("migrations/versions/r*.py"))


@pytest.mark.postgres
async def test_worker_speaks_for_the_agent_alone_and_gateway_for_approvers(urls: RoleUrls) -> None:
    row = "INSERT INTO request_messages VALUES ('main.s.t.c1.1', {number}, '{author}', '{{}}', 1)"
    await sql(urls.gateway, row.format(number=1, author="approver"))
    await sql(urls.worker, row.format(number=2, author="agent"))
    for url, author in ((urls.worker, "approver"), (urls.gateway, "agent")):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            await sql(url, row.format(number=3, author=author))
    for url in (urls.worker, urls.gateway):
        for change in ("UPDATE request_messages SET body = '[]'", "DELETE FROM request_messages"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await sql(url, change)
