import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_kit import Cli
from served_stack import MANIFEST

START_SECONDS = 60


@dataclass
class Site:
    folder: Path
    address: str
    queue: str
    port: int

    def env(self, process: str, **more: str) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("SIGNOFF_", "TEMPORAL_"))}
        return plain | {
            "SIGNOFF_PROFILE": "production",
            "SIGNOFF_MANIFEST": str(MANIFEST),
            "SIGNOFF_ENCRYPTION_KEYS": f"file:{self.folder}/encryption-keys.json",
            "SIGNOFF_STATE_DIR": str(self.folder / process),
            "SIGNOFF_STORE_URL": f"sqlite:///{self.folder}/signoff.db",
            "SIGNOFF_TASK_QUEUE": self.queue,
            "SIGNOFF_PORT": str(self.port),
            "TEMPORAL_ADDRESS": self.address,
            **more,
        }

    @asynccontextmanager
    async def running(self, process: str, **more: str) -> AsyncIterator[asyncio.subprocess.Process]:
        started = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "signoff.cli.main", process, "--json"),
            cwd=self.folder,
            env=self.env(process, **more),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert started.stdout is not None
        try:
            seen = []
            async with asyncio.timeout(START_SECONDS):
                # Log lines about other turns on the tests' server may come first.
                while not seen or (seen[-1] and not seen[-1].startswith("{")):
                    seen.append((await started.stdout.readline()).decode())
            assert seen[-1], "".join(seen)
            yield started
        finally:
            started.send_signal(signal.SIGKILL)
            await started.wait()


def here(clean_env: pytest.MonkeyPatch, site: Site, process: str) -> None:
    for name, value in site.env(process).items():
        if name.startswith(("SIGNOFF_", "TEMPORAL_")):
            clean_env.setenv(name, value)


async def token(cli: Cli, person: str, *some: str) -> str:
    scopes = [word for scope in some or ("read", "decide", "start") for word in ("--scope", scope)]
    ran = await cli("token", "create", person, *scopes, "--json")
    assert ran.code == 0, ran.err
    return str(ran.data["token"])


async def ready_site(cli: Cli, clean_env: pytest.MonkeyPatch, site: Site) -> None:
    here(clean_env, site, "gateway")
    assert (await cli("keys", "create")).code == 0
    await token(cli, "ana")
    for process in ("worker", "codec"):
        folder = site.folder / process
        folder.mkdir(mode=0o700)
        await cli("keys", "export", "--out", str(folder / "public-keys.json"))
