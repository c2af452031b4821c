import asyncio
import contextlib
import io
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import asyncpg

from signoff.cli.main import invoke


@dataclass(frozen=True)
class RoleUrls:
    owner: str
    worker: str
    gateway: str
    names: dict[str, str]


async def sql(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for each in statements:
            await connection.execute(each)
    finally:
        await connection.close()


async def made_roles(server: str) -> RoleUrls:
    """The owner is no superuser, and the two roles have no rights yet."""
    database = f"store_{uuid.uuid4().hex[:12]}"
    names = {each: f"{database}_{each}" for each in ("owner", "worker", "gateway")}
    await sql(
        f"{server}/postgres",
        *(f"CREATE ROLE {name} LOGIN" for name in names.values()),
        f"CREATE DATABASE {database} OWNER {names['owner']}",
    )
    host = server.rpartition("@")[2]
    urls = {each: f"postgresql://{name}@{host}/{database}" for each, name in names.items()}
    return RoleUrls(**urls, names=names)


async def store_command(url: str, folder: Path, *words: str) -> tuple[int, str]:
    """Runs in a thread of this process: starting a program and loading all of Signoff takes longer than the command."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SIGNOFF_", "TEMPORAL_"))}
    env |= {"SIGNOFF_STORE_URL": url, "SIGNOFF_STATE_DIR": str(folder / "state")}

    def run() -> tuple[int, str]:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = invoke(("store", *words))
        return code, out.getvalue()

    with mock.patch.dict(os.environ, env, clear=True), contextlib.chdir(folder):
        return await asyncio.to_thread(run)


async def given_roles(urls: RoleUrls, folder: Path) -> None:
    code, output = await store_command(
        urls.owner, folder, "roles", "--worker", urls.names["worker"], "--gateway", urls.names["gateway"]
    )
    assert code == 0, output
