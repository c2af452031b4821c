"""Creates the tables in an empty database, or upgrades older ones step by step."""

import importlib
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, inspect, text
from sqlalchemy.schema import CreateTable

from signoff.contracts.errors import ConfigError
from signoff.store.privileges import is_owner, may_read, role_of
from signoff.store.roles import StoreRole
from signoff.store.tables import METADATA, TRIGGERS

VERSION_TABLE: Final = "signoff_version"
"""The table in which Alembic records the last step.

Our own name, for databases shared with others.
"""
_FOLDER: Final = Path(__file__).parent / "migrations" / "versions"
STEPS: Final = tuple(sorted(file.stem.partition("_")[0] for file in _FOLDER.glob("r[0-9]*.py")))
# Released with its transaction, even if its process is killed. The number only has to be unique here. The next ones are
# in claim_conditions.py and questions.py.
_ADVISORY: Final = text("SELECT pg_advisory_xact_lock(7310270)")
_VERSION: Final = text(f"SELECT version_num FROM {VERSION_TABLE}")


def prepare(connection: Connection) -> StoreRole:
    """Create or upgrade the tables, one process at a time.

    A role that does not own the tables changes nothing. Raises `ConfigError` for a database of a newer version. Such a
    role also gets it for any other version, or if the database does not give it the rights of its role.
    """
    if not is_owner(connection, VERSION_TABLE):
        _require_ready(connection)
        return role_of(connection)
    if _step(connection) != STEPS[-1]:
        _change(connection)
    return "owner"


def _require_ready(connection: Connection) -> None:
    exists = inspect(connection).has_table(VERSION_TABLE)
    if exists and not may_read(connection, VERSION_TABLE):
        raise ConfigError(
            "this database role was given nothing in the store: run `signoff store roles` with the address of the "
            "tables' owner"
        )
    step = _step(connection) if exists else None
    if step != STEPS[-1]:
        raise ConfigError(
            f"the store's tables are of the version `{step or 'none'}`, this program's of `{STEPS[-1]}`, and this "
            "database role may not change them: with the address of their owner run `signoff store migrate`, then "
            "`signoff store roles`",
            value=step or "",
        )


def _change(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(_ADVISORY)
    # Another process may have done it while this one waited for the lock.
    step = _step(connection)
    # Stop an older program, which would write rows without columns that newer ones need.
    if step not in (None, *STEPS):
        raise ConfigError(
            f"the store's tables are of a newer version (`{step}`) than this program's (`{STEPS[-1]}`); "
            "install the newer one here, too",
            value=step,
        )
    if step is None:
        _make(connection)
    elif step != STEPS[-1]:
        # Import it only if there is something to migrate: importing takes longer than creating a new store.
        migrations: Any = importlib.import_module("signoff.store.migrations")
        migrations.migrate(connection, VERSION_TABLE)


def _step(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    version: str | None = connection.scalar(_VERSION)
    return version


def _make(connection: Connection) -> None:
    for table in METADATA.sorted_tables:
        connection.execute(CreateTable(table))
        for index in table.indexes:
            index.create(connection)
    for statement in TRIGGERS[connection.dialect.name]:
        connection.exec_driver_sql(statement)
    connection.exec_driver_sql(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) PRIMARY KEY)")
    connection.execute(text(f"INSERT INTO {VERSION_TABLE} VALUES (:step)"), {"step": STEPS[-1]})
