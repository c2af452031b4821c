"""From `store_url` to a database engine: SQLite or PostgreSQL, nothing else."""

import os
import sqlite3
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import URL, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry

from signoff.contracts.errors import ConfigError

BUSY_SECONDS: Final = 15
"""How long a writer waits for another process's write to the same SQLite file."""
POOL_SECONDS: Final = 30
POSTGRESQL_CONNECTIONS: Final = 5
CONNECT_SECONDS: Final = 10
STATEMENT_SECONDS: Final = 30

_DRIVERS: Final = {
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}


class Place(NamedTuple):
    """Where a store is: its URL with the driver, and words for it that hold no password."""

    url: URL
    words: str


def read_url(text: str) -> Place:
    """The place that `store_url` names. Raises `ConfigError` for one that cannot be a store; never shows a password."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ConfigError("store_url is not a URL; use `sqlite:///FILE` or `postgresql://USER@HOST/NAME`") from None
    driver = _DRIVERS.get(url.drivername)
    if driver is None:
        raise ConfigError(
            f"store_url speaks `{url.drivername}`, which no store does; use `sqlite:///FILE` or "
            "`postgresql://USER@HOST/NAME`",
            value=url.drivername,
        )
    url = url.set(drivername=driver)
    if driver == "sqlite+aiosqlite":
        return Place(url, f"the SQLite file `{_sqlite_file(url)}`")
    if find_spec("asyncpg") is None:
        raise ConfigError("store_url names PostgreSQL, whose driver is not installed; install `signoff[postgres]`")
    host = url.host or url.query.get("host") or "localhost"
    return Place(url, f"PostgreSQL database `{url.database or url.username or ''}` at `{host}`")


def make_engine(place: Place, *, durable: bool) -> AsyncEngine:
    """An engine that has not connected yet. `durable` makes SQLite sync every commit to disk."""
    if place.url.get_backend_name() != "sqlite":
        return create_async_engine(
            place.url,
            poolclass=AsyncAdaptedQueuePool,
            pool_size=POSTGRESQL_CONNECTIONS,
            pool_timeout=POOL_SECONDS,
            pool_pre_ping=True,
            isolation_level="READ COMMITTED",
            hide_parameters=True,
            connect_args={"timeout": CONNECT_SECONDS, "command_timeout": STATEMENT_SECONDS},
        )
    # One connection: writers of one process queue up in the pool, fairly, instead of polling for SQLite's lock.
    engine = create_async_engine(
        place.url,
        poolclass=AsyncAdaptedQueuePool,
        pool_size=1,
        max_overflow=0,
        pool_timeout=POOL_SECONDS,
        hide_parameters=True,
        connect_args={"timeout": BUSY_SECONDS},
    )
    synchronous = "FULL" if durable else "NORMAL"

    @event.listens_for(engine.sync_engine, "connect")
    def _prepare(connection: sqlite3.Connection, entry: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", f"synchronous={synchronous}", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    return engine


def make_private(place: Place) -> None:
    """Create the SQLite file, if absent, readable by its owner alone: it holds keys. Raises OSError."""
    if place.url.get_backend_name() == "sqlite":
        os.close(os.open(_sqlite_file(place.url), os.O_CREAT | os.O_RDWR, 0o600))


def _sqlite_file(url: URL) -> Path:
    name = url.database or ""
    if name in ("", ":memory:") or name.startswith("file:"):
        raise ConfigError("store_url names no file, and a store must outlive its process; use `sqlite:///FILE`")
    path = Path(name)
    if not path.parent.is_dir():
        raise ConfigError(f"the folder `{path.parent}` of store_url does not exist; create it", value=str(path))
    return path
