"""Previews of common effects: the write of a file, and the plan of an SQL statement."""

import asyncio
import contextlib
import sqlite3
from typing import Any, Final

from signoff.activities.backends.folders import Folders
from signoff.contracts.errors import ConfigError
from signoff.contracts.preview import Diff, PreviewPart, Sql
from signoff.keys.secret_references import FORMS, is_reference
from signoff.keys.secrets import SecretProvider
from signoff.registry.capabilities import Capabilities
from signoff.registry.hooks import HookContext, Previewer
from signoff.registry.installation import provider_of_secrets
from signoff.settings import Settings

SQL_SECONDS: Final = 3.0
"""Time limit of a plan, in seconds."""


def preview_file_write(folder: str, *, path: str = "path", text: str = "text") -> Previewer:
    """Return a preview of a file's content before and after a write, as the part `file`.

    `folder` contains the file, and no link leads out of it. `path` and `text` name the arguments with the file's
    absolute path and new content.
    """
    reach: Any = Folders().resolve(Capabilities(fs_reach=(folder,)), "")

    async def preview(args: dict[str, Any], context: HookContext) -> PreviewPart:
        before = b""
        with contextlib.suppress(FileNotFoundError):
            before = await reach.read(args[path])
        return Diff(name="file", title=args[path], before=before.decode(), after=args[text])

    return preview


def preview_sql(url: str, *, statement: str = "statement", secrets: SecretProvider | None = None) -> Previewer:
    """Return a preview of a statement and the database's plan for it, as the part `plan`. Never runs the statement.

    `url` is a reference to the address of a SQLite or PostgreSQL database, such as `env:REPORTS_URL`. Its account
    should only read. `statement` names the argument. Raises `ConfigError` for a literal address.
    """
    if not is_reference(url):
        raise ConfigError(f"`url` of an SQL preview is a reference: {FORMS}", field="url")
    provider: list[SecretProvider] = [] if secrets is None else [secrets]

    async def preview(args: dict[str, Any], context: HookContext) -> PreviewPart:
        if not provider:
            provider.append(provider_of_secrets(Settings()))
        address = (await provider[0].read(url, tenant=context.tenant)).strip()
        explain = _explain_sqlite if address.startswith("sqlite") else _explain_postgres
        plan = await explain(address, args[statement])
        return Sql(name="plan", statement=args[statement], plan=plan)

    return preview


async def _explain_sqlite(url: str, statement: str) -> str:
    return await asyncio.to_thread(_plan_of_sqlite, url.partition("///")[2], statement)


def _plan_of_sqlite(path: str, statement: str) -> str:
    # `execute` refuses several statements.
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=SQL_SECONDS)) as connection:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
    return "\n".join(row[3] for row in rows)


async def _explain_postgres(url: str, statement: str) -> str:
    # An optional package.
    import asyncpg  # noqa: PLC0415

    scheme, _, rest = url.partition("://")
    connection = await asyncpg.connect(f"{scheme.partition('+')[0]}://{rest}", timeout=SQL_SECONDS)
    try:
        async with connection.transaction(readonly=True):
            await connection.execute(f"SET LOCAL statement_timeout = '{SQL_SECONDS:g}s'")
            # A prepared statement is a single one. Options in parentheses exclude `EXPLAIN ANALYZE`.
            rows = await connection.fetch(f"EXPLAIN (COSTS FALSE) {statement}")
    finally:
        await connection.close(timeout=1)
    return "\n".join(row[0] for row in rows)
