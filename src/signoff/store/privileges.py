"""Detects the role of a PostgreSQL connection, and grants roles exactly their rights."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sqlalchemy import Connection, text

from signoff.contracts.errors import ConfigError
from signoff.store.roles import (
    NOTHING,
    PROCESS_ROLES,
    RIGHTS,
    ProcessRole,
    Rights,
    StoreRole,
    quote_identifier,
    statements,
)
from signoff.store.tables import METADATA

ONE_ROLE: Final = (
    "SQLite has one role: whoever takes a worker over can write answers, grants and freezes here, and only signatures "
    "stop them; PostgreSQL has two (`signoff store roles`)"
)
_AGAIN: Final = "run `signoff store roles` with the address of the tables' owner"
_TOO_MUCH: Final = {
    "rolsuper": "is a superuser",
    "rolbypassrls": "bypasses row-level security",
    "rolcreaterole": "may create roles",
    "rolcreatedb": "may create databases",
    "rolreplication": "may replicate the whole server",
}
# Membership in these gives access to the server's files and programs, and therefore to everything.
_SERVER_ROLES: Final = ("pg_execute_server_program", "pg_read_server_files", "pg_write_server_files")
_HERE: Final = text("SELECT current_user, current_schema(), current_database()")
_OWNS: Final = text(
    "SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c "
    "WHERE c.relnamespace = CAST(current_schema() AS regnamespace) AND c.relname = :named AND c.relkind IN ('r', 'p')"
)
_MAY_CREATE: Final = text("SELECT COALESCE(has_schema_privilege(current_schema(), 'CREATE'), false)")
_MAY_READ: Final = text(
    "SELECT has_table_privilege(c.oid, 'SELECT') FROM pg_class c "
    "WHERE c.relnamespace = CAST(current_schema() AS regnamespace) AND c.relname = :named"
)
_HELD: Final = text(
    """
    SELECT c.relname,
           has_any_column_privilege(r.oid, c.oid, 'SELECT') AS reads,
           has_any_column_privilege(r.oid, c.oid, 'INSERT') AS inserts,
           has_table_privilege(r.oid, c.oid, 'DELETE') AS deletes,
           ARRAY(SELECT CAST(a.attname AS text) FROM pg_attribute a
                 WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                   AND has_column_privilege(r.oid, c.oid, a.attnum, 'UPDATE')) AS updates
    FROM pg_class c CROSS JOIN pg_roles r
    WHERE r.rolname = :role AND c.relnamespace = CAST(current_schema() AS regnamespace) AND c.relname = ANY(:names)
    """
)
_BEHIND: Final = text(
    f"""
    SELECT r.rolname, {", ".join(f"r.{flag}" for flag in _TOO_MUCH)},
           has_schema_privilege(r.oid, current_schema(), 'CREATE') AS creates
    FROM pg_roles r WHERE pg_has_role(:role, r.oid, 'MEMBER') ORDER BY r.rolname
    """
)
_ROLE: Final = text(f"SELECT {', '.join(_TOO_MUCH)} FROM pg_roles WHERE rolname = :role")


def is_owner(connection: Connection, version_table: str) -> bool:
    """Return whether this connection may change the tables. Always true on SQLite."""
    if connection.dialect.name != "postgresql":
        return True
    owns = connection.scalar(_OWNS, {"named": version_table})
    # If there is no table yet, the role that creates it will own it.
    return bool(connection.scalar(_MAY_CREATE) if owns is None else owns)


def may_read(connection: Connection, table: str) -> bool:
    """False if there is no such table."""
    return bool(connection.scalar(_MAY_READ, {"named": table}))


def role_of(connection: Connection) -> StoreRole:
    """Raises `ConfigError` unless the rights are a worker's or a gateway's.

    Missing rights would fail at the first call that needs them. Excess rights defeat the purpose of the roles.
    """
    user, _, _ = connection.execute(_HERE).one()
    held = _read_held(connection, user)
    for role in PROCESS_ROLES:
        if not list(_differences(held, RIGHTS[role])):
            return role
    # Only a gateway may read tokens. Choose the intended role by that, so that the message names the one wrong table.
    meant: ProcessRole = "gateway" if held.get("tokens", NOTHING).select else "worker"
    first = next(_differences(held, RIGHTS[meant]))
    raise ConfigError(
        f"the database role `{user}` lacks the rights of this version's {meant} (table `{first}`): {_AGAIN}",
        value=user,
    )


def role_statements(connection: Connection, names: Mapping[ProcessRole, str], version_table: str) -> list[str]:
    """Raises `ConfigError` on SQLite and for missing roles."""
    _check_names(connection, names)
    _, schema, database = connection.execute(_HERE).one()
    return statements(names, schema=schema, database=database, version_table=version_table)


def give_roles(connection: Connection, names: Mapping[ProcessRole, str], version_table: str) -> None:
    """Grant exactly the roles' rights, and check that they have no others.

    Raises `ConfigError` if a role has others, as a superuser, by membership or as an owner. The caller must then roll
    back the transaction.
    """
    for statement in role_statements(connection, names, version_table):
        connection.exec_driver_sql(statement)
    for role in PROCESS_ROLES:
        _check_role(connection, role, names[role])


def _check_names(connection: Connection, names: Mapping[ProcessRole, str]) -> None:
    if connection.dialect.name != "postgresql":
        raise ConfigError(
            "SQLite has no roles: any process that can write the file can write all of it; two roles need PostgreSQL "
            "(`SIGNOFF_STORE_URL=postgresql://OWNER@HOST/NAME`)"
        )
    user, _, _ = connection.execute(_HERE).one()
    if names["worker"] == names["gateway"] or user in names.values():
        raise ConfigError(
            f"the worker's role, the gateway's and the owner's (`{user}`) must be three: with a shared role, a "
            "hijacked worker could answer requests"
        )
    for name in names.values():
        if connection.execute(_ROLE, {"role": name}).first() is None:
            raise ConfigError(
                f"there is no database role `{name}`: make it with "
                f"`CREATE ROLE {quote_identifier(name)} LOGIN PASSWORD '...'`",
                value=name,
            )


def _check_role(connection: Connection, role: ProcessRole, name: str) -> None:
    own = connection.execute(_ROLE, {"role": name}).one()
    for flag, words in _TOO_MUCH.items():
        if own._mapping[flag]:
            raise ConfigError(
                f"the database role `{name}` {words}: it would have more rights than a role may have", value=name
            )
    for row in connection.execute(_BEHIND, {"role": name}).all():
        for words in _beyond(connection, role, row):
            by = "" if row.rolname == name else f" as a member of `{row.rolname}`"
            raise ConfigError(f"the database role `{name}`{by} {words}: revoke that first", value=name)
    missing = next(_differences(_read_held(connection, name), RIGHTS[role]), None)
    if missing is not None:
        raise ConfigError(f"`{name}` lacks rights on `{missing}`: connect as the owner of the tables", value=name)


def _beyond(connection: Connection, role: ProcessRole, row: Any) -> Iterator[str]:
    """Includes rights by membership in another role."""
    yield from (words for flag, words in _TOO_MUCH.items() if row._mapping[flag])
    if row.rolname in _SERVER_ROLES:
        yield "reaches the server's files and programs"
    if row.creates:
        yield "may create tables"
    for table, held in _read_held(connection, row.rolname).items():
        if not held.is_within(RIGHTS[role].get(table, NOTHING)):
            yield f"may do more with the table `{table}` than a {role}"


def _differences(held: Mapping[str, Rights], wanted: Mapping[str, Rights]) -> Iterator[str]:
    for table in METADATA.tables:
        if held.get(table, NOTHING) != wanted.get(table, NOTHING).verbs:
            yield table


def _read_held(connection: Connection, role: str) -> dict[str, Rights]:
    rows = connection.execute(_HELD, {"role": role, "names": list(METADATA.tables)})
    return {
        row.relname: Rights(select=row.reads, insert=row.inserts, delete=row.deletes, update=frozenset(row.updates))
        for row in rows
    }
