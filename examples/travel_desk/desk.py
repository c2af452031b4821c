"""The travel desk's books: one SQLite file."""

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiosqlite

DATABASE: Final = "TRAVEL_DESK_DB"
"""Environment variable with the path of the SQLite file."""
DEFAULT_DATABASE: Final = ".signoff/travel.db"

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS flights (
    flight TEXT PRIMARY KEY, destination TEXT NOT NULL, departs TEXT NOT NULL,
    price REAL NOT NULL, currency TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS bookings (
    booking INTEGER PRIMARY KEY, idempotency_key TEXT NOT NULL UNIQUE, flight TEXT NOT NULL, destination TEXT NOT NULL,
    passenger TEXT NOT NULL, total REAL NOT NULL, currency TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'booked'
);
CREATE TABLE IF NOT EXISTS cancellations (entry INTEGER PRIMARY KEY, booking INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS refunds (
    idempotency_key TEXT PRIMARY KEY, booking INTEGER NOT NULL, amount REAL NOT NULL
);
"""
_FLIGHTS: Final = (
    ("TP 531", "Lisbon", "2030-05-04T09:20", 420.0, "EUR"),
    ("TP 537", "Lisbon", "2030-05-04T18:05", 515.0, "EUR"),
    ("TP 1951", "Porto", "2030-05-04T07:40", 39.0, "EUR"),
    ("OS 412", "Vienna", "2030-05-05T11:15", 180.0, "EUR"),
)
_BOOKING: Final = re.compile(r"TD-([1-9][0-9]{0,8})")


def booking_name(number: int) -> str:
    """Return the name of booking 7: `TD-7`."""
    return f"TD-{number}"


def booking_number(name: str) -> int:
    """Return the number in `TD-7`, or 0 for any other name."""
    found = _BOOKING.fullmatch(name.strip())
    return int(found[1]) if found else 0


@asynccontextmanager
async def books() -> AsyncIterator[aiosqlite.Connection]:
    """Open the desk's file, and create and seed it if necessary. The caller commits."""
    path = Path(os.environ.get(DATABASE) or DEFAULT_DATABASE)
    path.parent.mkdir(parents=True, exist_ok=True)
    async with aiosqlite.connect(path, timeout=30) as connection:
        connection.row_factory = aiosqlite.Row
        await connection.executescript(_TABLES)
        await connection.executemany("INSERT OR IGNORE INTO flights VALUES (?, ?, ?, ?, ?)", _FLIGHTS)
        await connection.commit()
        yield connection
