"""The tool and its preview. One SQLite file has the accounts."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiosqlite

from signoff import ToolContext
from signoff.tools import Diff, HookContext, PreviewPart

DATABASE: Final = "SUPPLIERS_DB"
"""Environment variable with the path of the SQLite file."""
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS suppliers (supplier TEXT PRIMARY KEY, account TEXT NOT NULL);
INSERT OR IGNORE INTO suppliers VALUES ('Nordwind', 'DE02 1203 0000 0000 2020 51');
"""


@asynccontextmanager
async def _records() -> AsyncIterator[aiosqlite.Connection]:
    path = Path(os.environ.get(DATABASE) or ".signoff/suppliers.db")
    path.parent.mkdir(parents=True, exist_ok=True)
    async with aiosqlite.connect(path, timeout=30) as connection:
        await connection.executescript(_TABLES)
        yield connection


async def _account(connection: aiosqlite.Connection, supplier: str) -> str:
    rows = list(await connection.execute_fetchall("SELECT account FROM suppliers WHERE supplier = ?", (supplier,)))
    return str(rows[0][0]) if rows else "none"


async def preview_account(args: dict[str, Any], context: HookContext) -> list[PreviewPart]:
    """Show the account on file, and the new one."""
    async with _records() as connection:
        before = await _account(connection, args["supplier"])
    return [Diff(name="account", title=f"Account of {args['supplier']}", before=before, after=args["account"])]


async def change_account(supplier: str, account: str, ctx: ToolContext) -> dict[str, Any]:
    """Change the account that a supplier is paid to.

    Args:
        supplier: The supplier's name.
        account: The new account, an IBAN.
    """
    async with _records() as connection:
        await connection.execute(
            "INSERT INTO suppliers VALUES (?, ?) ON CONFLICT (supplier) DO UPDATE SET account = excluded.account",
            (supplier, account),
        )
        await connection.commit()
        return {"supplier": supplier, "account": await _account(connection, supplier)}
