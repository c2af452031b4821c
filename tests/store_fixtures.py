"""Stores of every kind: tests with `store_url` or `store` run on SQLite and on a real PostgreSQL server."""

import contextlib
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

from signoff.store import database as database_module
from signoff.store import store as store_module
from signoff.store.database import StoreAddress, make_private
from signoff.store.store import Store, open_store
from signoff.store.upgrade import prepare
from tools.bench.postgres import running_postgres


class EmptyStores:
    """New SQLite stores of this process are copies of an empty one: creating tables takes five times as long. The id
    and the keys, which the opening process writes first, are not in the copy. Tests of the creation, and other
    processes, create their stores.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "empty.db"
        self._image = b""

    def make_private(self, place: StoreAddress) -> None:
        if place.url.get_backend_name() == "sqlite" and place.url.database is not None:
            self._copy(Path(place.url.database))
        make_private(place)

    def _copy(self, file: Path) -> None:
        if file.exists() or not os.access(file.parent, os.W_OK):
            return
        self._image = self._image or self._make()
        whole = file.with_name(f"{file.name}.{threading.get_ident()}.copy")
        with open(os.open(whole, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as copy:
            copy.write(self._image)
        # Complete or not at all, and never over another process's file.
        with contextlib.suppress(FileExistsError):
            os.link(whole, file)
        whole.unlink()

    def _make(self) -> bytes:
        engine = create_engine(f"sqlite:///{self._file}")
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            prepare(connection)
            connection.commit()
        engine.dispose()
        return self._file.read_bytes()

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store_module, "make_private", self.make_private)
            yield


@contextlib.contextmanager
def shared_statements() -> Iterator[None]:
    """SQLite stores of this process share their compiled statements. SQLAlchemy compiles each statement once per
    engine, and the tests open thousands. A compiled statement holds no value and no connection.
    """
    compiled: LRUCache[Any, Any] = LRUCache(2000)
    make = database_module._sqlite_engine

    def make_sharing(place: StoreAddress, *, durable: bool, reads: bool) -> Engine:
        engine = make(place, durable=durable, reads=reads)
        engine._compiled_cache = compiled
        return engine

    with pytest.MonkeyPatch.context() as patch:
        # A dialect is part of a cached statement's key, and each engine creates one.
        patch.setattr(SQLiteDialect_pysqlite, "__eq__", lambda one, other: type(one) is type(other))
        patch.setattr(SQLiteDialect_pysqlite, "__hash__", lambda one: hash(type(one)))
        patch.setattr(database_module, "_sqlite_engine", make_sharing)
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    with running_postgres("signoff") as address:
        yield f"postgresql://signoff@{address}"


@pytest.fixture
async def postgres_url(postgres_server: str) -> str:
    """Emptying a database is far quicker than creating one."""
    url = f"{postgres_server}/postgres"
    admin = await asyncpg.connect(url)
    await admin.execute("DROP SCHEMA public CASCADE")
    await admin.execute("CREATE SCHEMA public")
    await admin.close()
    return url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    async with open_store(store_url) as opened:
        yield opened


@pytest.fixture(autouse=True)
def made_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of the stores create each one, see `EmptyStores`."""
    monkeypatch.setattr(store_module, "make_private", make_private)


@pytest.fixture
def threads_end() -> Iterator[None]:
    """Every thread that the test starts ends. A stopped one may still be ending."""
    before = set(threading.enumerate())
    yield
    new = set(threading.enumerate()) - before
    for thread in new:
        thread.join(timeout=60)
    assert not [thread for thread in new if thread.is_alive()]
