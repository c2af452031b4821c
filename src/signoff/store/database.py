"""Opens the database of a `store_url`, SQLite or PostgreSQL, and runs transactions in it."""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

from sqlalchemy import URL, Connection, Dialect, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry, NullPool, PoolProxiedConnection, QueuePool

from signoff.contracts.errors import ConfigError, SignoffError, StoreUnavailable
from signoff.store.change_notices import CHANGED, ChangeNotices

OPEN_SECONDS: Final = 15.0
"""Maximum wait when opening: another process may be upgrading the same SQLite file."""
BUSY_SECONDS: Final = 2.0
"""Maximum wait of a write for another process's write to the same SQLite file."""
BUSY_AGAIN_SECONDS: Final = 0.1
"""Maximum wait of a write if the previous write gave up waiting."""
BLOCKED_SECONDS: Final = 0.4
"""A write that waits longer than this marks the SQLite file as blocked."""
POOL_SECONDS: Final = 30
POSTGRESQL_CONNECTIONS: Final = 5
CONNECT_SECONDS: Final = 10
STATEMENT_SECONDS: Final = 30
PING_SECONDS: Final = 1.0
"""A pooled connection idle for longer than this is tested before use."""

_CONNECTING: Final = {"timeout": CONNECT_SECONDS, "command_timeout": STATEMENT_SECONDS}
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
    words: str
    """The address for messages, without the password."""


def read_url(text: str) -> StoreAddress:
    """Parse `store_url`.

    Raises `ConfigError` for a URL that cannot be a store. Never shows a password.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # Do not chain the original error: its text may quote the URL with the password.
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
    # Check here, where the message can name the extra. SQLAlchemy would only name the missing module.
    if find_spec("asyncpg") is None:
        raise ConfigError("store_url names PostgreSQL, whose driver is not installed; install `signoff[postgres]`")
    host = url.host or url.query.get("host") or "localhost"
    return StoreAddress(url, f"PostgreSQL database `{url.database or url.username or ''}` at `{host}`")


Found = TypeVar("Found")


class Database(Protocol):
    """A database that runs transactions. Does not connect before the first transaction."""

    dialect: str

    async def run(self, work: Callable[[Connection], Found]) -> Found:
        """Commit when `work` returns, roll back when it raises."""
        ...

    async def read(self, work: Callable[[Connection], Found]) -> Found:
        """`work` writes nothing. Its transaction does not wait for writes."""
        ...

    async def change_mark(self) -> Hashable:
        """Return a value that differs once another commit is visible.

        Costs no transaction. PostgreSQL's may miss a change, and differs each second while it hears of none.
        """
        ...

    async def hears_changes(self) -> bool:
        """Return whether other processes' commits change the mark at once."""
        ...

    def problem(self) -> str:
        """Return the reason why writes are blocked now, or ""."""
        ...

    async def close(self) -> None: ...


class SqliteDatabase:
    """Runs SQLite in two threads with one connection each.

    The reader never waits for a write. Writers in a process queue fairly instead of polling for its lock. One visit to
    a thread runs a whole transaction. One visit for each statement took 2.6 times as long.
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
        """Raises `StoreUnavailable` if another process holds the file's lock.

        Cancelling the caller does not stop a transaction that has begun.
        """
        given_up = self._given_up

        def write(connection: Connection) -> Found:
            if self._given_up != given_up:
                # Getting the lock failed while this write was queued. Fail at once, so that queued callers do not each
                # wait in turn.
                raise self._locked()
            self._take_lock(connection)
            return work(connection)

        return await self._writer.run(write)

    async def read(self, work: Callable[[Connection], Found]) -> Found:
        def read(connection: Connection) -> Found:
            # Use one snapshot for all statements: the writer may commit between two of them.
            connection.exec_driver_sql("BEGIN")
            return work(connection)

        return await self._reader.run(read)

    async def change_mark(self) -> Hashable:
        return await self._reader.run(_data_version)

    async def hears_changes(self) -> bool:
        return True

    def problem(self) -> str:
        since = self._waits_since
        blocked = since is not None and time.monotonic() - since > BLOCKED_SECONDS
        return self._locked().message if blocked or self._patience == BUSY_AGAIN_SECONDS else ""

    async def close(self) -> None:
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
        # `make_private` has created the file: with `None`, a store without its file would pass as the same one.
        self._identity = _identity(file)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, work: Callable[[Connection], Found]) -> Found:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transaction, work)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._leave)
        # The thread has no work left, and waiting would block the event loop.
        self._thread.shutdown(wait=False)

    def _transaction(self, work: Callable[[Connection], Found]) -> Found:
        if _identity(self._file) != self._identity:
            # SQLite would keep writing into a file without a name, and its tickets would be lost.
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
            # Our own rollback, for example of a rejected ticket. The connection is still good.
            raise
        except BaseException:
            # After any other error, use a new connection for the next transaction.
            self._leave()
            raise

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._engine.dispose()


class PostgresDatabase:
    """Runs PostgreSQL with a pool of connections."""

    dialect = "postgresql"

    def __init__(self, engine: AsyncEngine, listening: AsyncEngine) -> None:
        self._engine = engine
        self.notices: Final = ChangeNotices(engine, listening)

    async def run(self, work: Callable[[Connection], Found]) -> Found:
        async with self._engine.begin() as connection:
            connection.info.pop(CHANGED, None)
            result = await connection.run_sync(work)
            changed = connection.info.pop(CHANGED, False)
        if changed:
            # After the commit: a notice in the transaction makes all commits wait for each other.
            self.notices.announce()
        return result

    async def read(self, work: Callable[[Connection], Found]) -> Found:
        return await self.run(work)

    async def change_mark(self) -> Hashable:
        return self.notices.mark()

    async def hears_changes(self) -> bool:
        return await self.notices.check()

    def problem(self) -> str:
        """PostgreSQL locks rows, not the database."""
        return ""

    async def close(self) -> None:
        await self.notices.close()
        await self._engine.dispose()


def open_database(place: StoreAddress, listening: StoreAddress | None = None, *, durable: bool) -> Database:
    """`durable` makes SQLite sync every commit to disk. PostgreSQL's notices arrive at `listening`, or at `place`."""
    if place.url.get_backend_name() == "sqlite":
        writing, reading = (_sqlite_engine(place, durable=durable, reads=reads) for reads in (False, True))
        return SqliteDatabase(writing, reading, _sqlite_file(place.url))
    engine = create_async_engine((listening or place).url, poolclass=NullPool, connect_args=_CONNECTING)
    return PostgresDatabase(_postgres_engine(place), engine)


def _postgres_engine(place: StoreAddress) -> AsyncEngine:
    engine = create_async_engine(
        place.url,
        poolclass=AsyncAdaptedQueuePool,
        pool_size=POSTGRESQL_CONNECTIONS,
        pool_timeout=POOL_SECONDS,
        # A read after waiting for a lock must see its holder's changes. REPEATABLE READ would show the state before the
        # wait.
        isolation_level="READ COMMITTED",
        # Parameters contain arguments and secrets. By default SQLAlchemy writes them into errors and logs.
        hide_parameters=True,
        connect_args=_CONNECTING,
    )

    # A restarted server has dropped the pooled connections, and the next claim would fail without this test.
    # SQLAlchemy's `pool_pre_ping` tests every time, in three round trips, as many as a whole transaction of one
    # statement.
    @event.listens_for(engine.sync_engine, "checkin")
    def _note_use(connection: DBAPIConnection | None, entry: ConnectionPoolEntry) -> None:
        entry.info["used"] = time.monotonic()

    @event.listens_for(engine.sync_engine, "checkout")
    def _check(connection: DBAPIConnection, entry: ConnectionPoolEntry, use: PoolProxiedConnection) -> None:
        used: float | None = entry.info.get("used")
        if used is None:
            return
        # The driver notices a closed connection at once, but not a lost network.
        closed = entry.driver_connection is None or entry.driver_connection.is_closed()
        if closed or (time.monotonic() - used > PING_SECONDS and not _answers(engine.dialect, connection)):
            # SQLAlchemy invalidates all connections of the same age and replaces this one.
            raise InvalidatePoolError

    return engine


def _answers(dialect: Dialect, connection: DBAPIConnection) -> bool:
    try:
        return dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        if dialect.is_disconnect(error, connection, None):
            return False
        raise


def _data_version(connection: Connection) -> int:
    version: int = connection.exec_driver_sql("PRAGMA data_version").scalar_one()
    return version


def _begin(connection: Connection) -> bool:
    """Return False if another process keeps SQLite's lock for the connection's timeout.

    Take the lock before the first statement: SQLite refuses it at once to a transaction that has read before another
    wrote. The driver would also begin no transaction before CREATE or ALTER.
    """
    driver: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
    try:
        driver.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        # The low byte is the kind of error. The rest gives details, such as SQLITE_BUSY_RECOVERY after a crash.
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
        # A writer retries in `_take_lock`, so that the wait is known. A reader waits only after a crash.
        connect_args={"timeout": OPEN_SECONDS if reads else BUSY_AGAIN_SECONDS},
    )
    # With WAL, NORMAL survives a killed process. A power cut may lose the last commits, but leaves the file intact.
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
    # Unlike elsewhere, SQLite does not wait for its lock here if another process switches the mode of the same file.
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
    """Create the SQLite file, if absent, readable by its owner only, because it holds keys. Raises `OSError`."""
    if place.url.get_backend_name() == "sqlite":
        # SQLite gives its -wal and -shm files the mode of this file, so they are private as well.
        os.close(os.open(_sqlite_file(place.url), os.O_CREAT | os.O_RDWR, 0o600))


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _sqlite_file(url: URL) -> Path:
    name = url.database or ""
    # The store must outlive the process: a retry after a lost ticket would run the tool a second time.
    if name in ("", ":memory:") or name.startswith("file:"):
        raise ConfigError("store_url names no file, and a store must outlive its process; use `sqlite:///FILE`")
    path = Path(name)
    if not path.parent.is_dir():
        raise ConfigError(f"the folder `{path.parent}` of store_url does not exist; create it", value=str(path))
    return path
