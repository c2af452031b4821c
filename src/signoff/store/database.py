"""Opens the database of a `store_url` and runs transactions in it: SQLite or PostgreSQL, nothing else."""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

from sqlalchemy import URL, Connection, Dialect, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry, PoolProxiedConnection, QueuePool

from signoff.contracts.errors import ConfigError, SignoffError, StoreUnavailable

OPEN_SECONDS: Final = 15.0
"""Time that opening a store waits for another process, which may be upgrading the tables of the same SQLite file."""
BUSY_SECONDS: Final = 2.0
"""Time that a write waits for another process's write to the same SQLite file."""
BUSY_AGAIN_SECONDS: Final = 0.1
"""Time that a write waits if the write before it has waited in vain."""
BLOCKED_SECONDS: Final = 0.4
"""Wait of a write after which the SQLite file counts as blocked."""
POOL_SECONDS: Final = 30
POSTGRESQL_CONNECTIONS: Final = 5
CONNECT_SECONDS: Final = 10
STATEMENT_SECONDS: Final = 30
PING_SECONDS: Final = 1.0
"""A pooled connection that was not used for so long is asked whether it still works before it is used."""

_DRIVERS: Final = {
    "sqlite": "sqlite+pysqlite",
    "sqlite+aiosqlite": "sqlite+pysqlite",
    "sqlite+pysqlite": "sqlite+pysqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}


class StoreAddress(NamedTuple):
    """The address of a store."""

    url: URL
    """The URL, with the driver."""
    words: str
    """The address in words that hold no password."""


def read_url(text: str) -> StoreAddress:
    """Parses `store_url`. Raises `ConfigError` for a URL that cannot be a store; never shows a password."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # The error's own text may quote the URL, password and all: nothing of it goes on.
        raise ConfigError("store_url is not a URL; use `sqlite:///FILE` or `postgresql://USER@HOST/NAME`") from None
    driver = _DRIVERS.get(url.drivername)
    if driver is None:
        raise ConfigError(
            f"store_url speaks `{url.drivername}`, which no store does; use `sqlite:///FILE` or "
            "`postgresql://USER@HOST/NAME`",
            value=url.drivername,
        )
    url = url.set(drivername=driver)
    if driver == "sqlite+pysqlite":
        return StoreAddress(url, f"the SQLite file `{_sqlite_file(url)}`")
    # Asked here, where the extra can be named: SQLAlchemy would say only which module is missing.
    if find_spec("asyncpg") is None:
        raise ConfigError("store_url names PostgreSQL, whose driver is not installed; install `signoff[postgres]`")
    host = url.host or url.query.get("host") or "localhost"
    return StoreAddress(url, f"PostgreSQL database `{url.database or url.username or ''}` at `{host}`")


Found = TypeVar("Found")


class Database(Protocol):
    """A database that runs transactions. It does not connect before the first transaction."""

    dialect: str

    async def run(self, work: Callable[[Connection], Found]) -> Found:
        """Runs `work` in a transaction of its own, committed when it returns and rolled back when it raises."""
        ...

    async def read(self, work: Callable[[Connection], Found]) -> Found:
        """Runs `work`, which writes nothing, in a transaction of its own that waits for no write."""
        ...

    def problem(self) -> str:
        """Return why writes are blocked now, or ""."""
        ...

    async def close(self) -> None:
        """Closes all connections."""
        ...


class SqliteDatabase:
    """Runs SQLite in two threads of one connection each: one writes, one reads and waits for no write.

    Writers of a process queue up fairly instead of polling for its lock. A whole transaction is one visit to a thread;
    a visit for each statement took 2.6 times as long.
    """

    dialect = "sqlite"

    def __init__(self, writing: Engine, reading: Engine, file: Path) -> None:
        self._file = file
        self._writer = _SqliteThread(writing, file, "signoff-store")
        self._reader = _SqliteThread(reading, file, "signoff-store-reads")
        self._patience = OPEN_SECONDS
        self._given_up = 0
        self._waits_since: float | None = None

    async def run(self, work: Callable[[Connection], Found]) -> Found:
        """See `Database`. Raises `StoreUnavailable` if another process keeps the file's lock.

        A cancelled caller does not stop a transaction that has begun.
        """
        given_up = self._given_up

        def write(connection: Connection) -> Found:
            if self._given_up != given_up:
                # The lock was not given while this waited in the queue. Callers behind it must not wait in turn.
                raise self._locked()
            self._take_lock(connection)
            return work(connection)

        return await self._writer.run(write)

    async def read(self, work: Callable[[Connection], Found]) -> Found:
        """See `Database`."""

        def read(connection: Connection) -> Found:
            # One snapshot for all statements: the writer may commit between two of them.
            connection.exec_driver_sql("BEGIN")
            return work(connection)

        return await self._reader.run(read)

    def problem(self) -> str:
        """See `Database`."""
        since = self._waits_since
        blocked = since is not None and time.monotonic() - since > BLOCKED_SECONDS
        return self._locked().message if blocked or self._patience == BUSY_AGAIN_SECONDS else ""

    async def close(self) -> None:
        """See `Database`."""
        await self._reader.close()
        await self._writer.close()

    def _take_lock(self, connection: Connection) -> None:
        self._waits_since = time.monotonic()
        try:
            while not _begin(connection):
                if time.monotonic() - self._waits_since >= self._patience:
                    self._given_up += 1
                    self._patience = BUSY_AGAIN_SECONDS
                    raise self._locked()
            self._patience = BUSY_SECONDS
        finally:
            self._waits_since = None

    def _locked(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"another process holds the lock of the SQLite file `{self._file}`: nothing was written; end that process "
            "or its transaction"
        )


class _SqliteThread:
    """Runs transactions on one connection in one thread."""

    def __init__(self, engine: Engine, file: Path, name: str) -> None:
        self._engine = engine
        self._connection: Connection | None = None
        self._file = file
        # `make_private` has made the file by now: None would let a store without its file pass for the same one.
        self._identity = _identity(file)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, work: Callable[[Connection], Found]) -> Found:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transaction, work)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._leave)
        # Nothing is left to wait for, and waiting would hold up the event loop.
        self._thread.shutdown(wait=False)

    def _transaction(self, work: Callable[[Connection], Found]) -> Found:
        if _identity(self._file) != self._identity:
            # SQLite would go on writing into a file that has no name any more, and its tickets would be lost.
            raise StoreUnavailable(
                f"the SQLite file `{self._file}` was removed or replaced: stop and start `signoff dev`, or each "
                "process that uses the file; to keep its data, put the file back between"
            )
        if self._connection is None:
            self._connection = self._engine.connect()
        try:
            with self._connection.begin():
                return work(self._connection)
        except SignoffError:
            # Our own rollback, such as a ticket that is not given: the connection is as good as before.
            raise
        except BaseException:
            # Whatever went wrong, the next transaction begins on a connection that has seen nothing of it.
            self._leave()
            raise

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._engine.dispose()


class PostgresDatabase:
    """Runs PostgreSQL over a pool of connections."""

    dialect = "postgresql"

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def run(self, work: Callable[[Connection], Found]) -> Found:
        """See `Database`."""
        async with self._engine.begin() as connection:
            return await connection.run_sync(work)

    async def read(self, work: Callable[[Connection], Found]) -> Found:
        """See `Database`."""
        return await self.run(work)

    def problem(self) -> str:
        """See `Database`. PostgreSQL locks rows, not the database."""
        return ""

    async def close(self) -> None:
        """See `Database`."""
        await self._engine.dispose()


def open_database(place: StoreAddress, *, durable: bool) -> Database:
    """Opens the database at `place`. `durable` makes SQLite sync every commit to disk."""
    if place.url.get_backend_name() == "sqlite":
        writing, reading = (_sqlite_engine(place, durable=durable, reads=reads) for reads in (False, True))
        return SqliteDatabase(writing, reading, _sqlite_file(place.url))
    return PostgresDatabase(_postgres_engine(place))


def _postgres_engine(place: StoreAddress) -> AsyncEngine:
    engine = create_async_engine(
        place.url,
        poolclass=AsyncAdaptedQueuePool,
        pool_size=POSTGRESQL_CONNECTIONS,
        pool_timeout=POOL_SECONDS,
        # What is read after waiting for a lock has to be what its holder left.
        # REPEATABLE READ would show what was there before the wait.
        isolation_level="READ COMMITTED",
        # Parameters are arguments and secrets, and SQLAlchemy writes them into errors and logs.
        hide_parameters=True,
        connect_args={"timeout": CONNECT_SECONDS, "command_timeout": STATEMENT_SECONDS},
    )

    # A server that restarted has dropped the pooled connections: unasked, the next claim would fail. SQLAlchemy's own
    # `pool_pre_ping` asks each time, in three round trips, as many as a transaction of one statement has itself.
    @event.listens_for(engine.sync_engine, "checkin")
    def _note_use(connection: DBAPIConnection | None, entry: ConnectionPoolEntry) -> None:
        entry.info["used"] = time.monotonic()

    @event.listens_for(engine.sync_engine, "checkout")
    def _check(connection: DBAPIConnection, entry: ConnectionPoolEntry, use: PoolProxiedConnection) -> None:
        used: float | None = entry.info.get("used")
        if used is None:
            return
        # The driver knows at once that a connection was closed, but not that its network is gone.
        closed = entry.driver_connection is None or entry.driver_connection.is_closed()
        if closed or (time.monotonic() - used > PING_SECONDS and not _answers(engine.dialect, connection)):
            # All others that are as old are given up with it, and this one is replaced.
            raise InvalidatePoolError

    return engine


def _answers(dialect: Dialect, connection: DBAPIConnection) -> bool:
    try:
        return dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        if dialect.is_disconnect(error, connection, None):
            return False
        raise


def _begin(connection: Connection) -> bool:
    """Begin to write, unless another process holds SQLite's lock for as long as the connection waits.

    The lock comes before the first statement: SQLite refuses it at once to a transaction that read before another
    wrote. The driver would also begin no transaction before CREATE or ALTER.
    """
    driver: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
    try:
        driver.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        # The low byte is the kind. The rest says more, such as SQLITE_BUSY_RECOVERY after a crash.
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        return False
    return True


def _sqlite_engine(place: StoreAddress, *, durable: bool, reads: bool) -> Engine:
    engine = create_engine(
        place.url,
        poolclass=QueuePool,
        pool_size=1,
        max_overflow=0,
        hide_parameters=True,
        # A writer asks again by itself, so that it knows how long it waits. A reader waits only after a crash.
        connect_args={"timeout": OPEN_SECONDS if reads else BUSY_AGAIN_SECONDS},
    )
    # With WAL, NORMAL outlives a killed process; a power cut may take the last commits, and leaves the file sound.
    synchronous = "FULL" if durable else "NORMAL"

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, entry: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        _write_ahead(cursor)
        for pragma in (f"synchronous={synchronous}", "foreign_keys=ON", f"query_only={'ON' if reads else 'OFF'}"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    return engine


def _write_ahead(cursor: sqlite3.Cursor) -> None:
    # SQLite does not wait for its lock here, as it does everywhere else, when another process switches the same file.
    patience = time.monotonic() + OPEN_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > patience:
                raise
            time.sleep(0.01)
        else:
            return


def make_private(place: StoreAddress) -> None:
    """Creates the SQLite file, if absent, readable by its owner alone, as it holds keys. Raises OSError."""
    if place.url.get_backend_name() == "sqlite":
        # SQLite gives its -wal and -shm files the mode of this one, so they are private with it.
        os.close(os.open(_sqlite_file(place.url), os.O_CREAT | os.O_RDWR, 0o600))


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _sqlite_file(url: URL) -> Path:
    name = url.database or ""
    # A ticket that is forgotten with its process would let a retry run the tool a second time.
    if name in ("", ":memory:") or name.startswith("file:"):
        raise ConfigError("store_url names no file, and a store must outlive its process; use `sqlite:///FILE`")
    path = Path(name)
    if not path.parent.is_dir():
        raise ConfigError(f"the folder `{path.parent}` of store_url does not exist; create it", value=str(path))
    return path
