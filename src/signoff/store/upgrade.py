"""Brings a database to the tables of this version: at once when it is empty, step by step when it is older."""

import importlib
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, inspect, text
from sqlalchemy.schema import CreateTable

from signoff.contracts.errors import ConfigError
from signoff.store.privileges import is_owner, may_read, role_of
from signoff.store.roles import StoreRole
from signoff.store.tables import METADATA

VERSION_TABLE: Final = "signoff_version"
"""Where alembic writes which step a database has taken; a name of our own, for databases shared with others."""
_FOLDER: Final = Path(__file__).parent / "migrations" / "versions"
STEPS: Final = tuple(sorted(file.stem.partition("_")[0] for file in _FOLDER.glob("r[0-9]*.py")))
# Gone with its transaction, also when its process is killed. The number only has to be ours; the next are in
# claim_conditions.py and questions.py.
_ADVISORY: Final = text("SELECT pg_advisory_xact_lock(7310270)")
_VERSION: Final = text(f"SELECT version_num FROM {VERSION_TABLE}")


def prepare(connection: Connection) -> StoreRole:
    """Makes or upgrades the tables, one opener at a time, and returns the role of the connection.

    A role that does not own them changes nothing. Raises `ConfigError` for a database of a newer version, and to such a
    role for each that is not of this version, or does not give it the rights of its role.
    """
    if not is_owner(connection, VERSION_TABLE):
        _require_ready(connection)
        return role_of(connection)
    if _step(connection) != STEPS[-1]:
        _change(connection)
    return "owner"


def _require_ready(connection: Connection) -> None:
    there = inspect(connection).has_table(VERSION_TABLE)
    if there and not may_read(connection, VERSION_TABLE):
        raise ConfigError(
            "this database role was given nothing in the store: run `signoff store roles` with the address of the "
            "tables' owner"
        )
    step = _step(connection) if there else None
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
    # Another opener may have done it while this one waited for the lock.
    step = _step(connection)
    # An older program would write rows without columns that the newer ones rely on: it stops instead.
    if step not in (None, *STEPS):
        raise ConfigError(
            f"the store's tables are of a newer version (`{step}`) than this program's (`{STEPS[-1]}`); "
            "install the newer one here, too",
            value=step,
        )
    if step is None:
        _make(connection)
    elif step != STEPS[-1]:
        # Imported only where there is something to migrate: it takes longer than making a new store.
        migrations: Any = importlib.import_module("signoff.store.migrations")
        migrations.migrate(connection, VERSION_TABLE)


def _step(connection: Connection) -> str | None:
    """Returns the step that the database has taken last, or None."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found: str | None = connection.scalar(_VERSION)
    return found


def _make(connection: Connection) -> None:
    for table in METADATA.sorted_tables:
        connection.execute(CreateTable(table))
        for index in table.indexes:
            index.create(connection)
    connection.exec_driver_sql(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) PRIMARY KEY)")
    connection.execute(text(f"INSERT INTO {VERSION_TABLE} VALUES (:step)"), {"step": STEPS[-1]})
