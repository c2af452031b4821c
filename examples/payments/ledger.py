"""The bank: one SQLite file."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiosqlite

DATABASE: Final = "PAYMENTS_DB"
"""Environment variable with the path of the SQLite file."""
DEFAULT_DATABASE: Final = ".signoff/payments.db"

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS payments (
    payment INTEGER PRIMARY KEY, idempotency_key TEXT NOT NULL UNIQUE, invoice TEXT NOT NULL, payee TEXT NOT NULL,
    amount REAL NOT NULL, currency TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS top_ups (
    entry INTEGER PRIMARY KEY, idempotency_key TEXT NOT NULL UNIQUE, office TEXT NOT NULL, amount REAL NOT NULL
);
"""


@asynccontextmanager
async def ledger() -> AsyncIterator[aiosqlite.Connection]:
    """Open the ledger's file, and create it if necessary. The caller commits."""
    path = Path(os.environ.get(DATABASE) or DEFAULT_DATABASE)
    path.parent.mkdir(parents=True, exist_ok=True)
    async with aiosqlite.connect(path, timeout=30) as connection:
        connection.row_factory = aiosqlite.Row
        await connection.executescript(_TABLES)
        yield connection
