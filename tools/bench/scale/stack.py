"""An installation of the production profile as processes: embedded server, workers and gateways over one store."""

import asyncio
import contextlib
import os
import resource
import shutil
import subprocess
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx2
import psutil
from temporalio.client import Client

from signoff.temporal.embedded_server import ServerHandle, ServerOptions, free_port, run_server
from signoff.temporal.server_connection import LOOPBACK

PROJECT = Path(__file__).parent / "project"
SCOPES = ("read", "decide", "start")
_READY_SECONDS = 60.0


class StackFailed(Exception):
    """A process of the installation did not start, or a command failed."""


@dataclass(frozen=True)
class CommandTime:
    """The wall-clock and processor seconds of one command."""

    wall: float
    processor: float
    output: str


@dataclass
class Gateway:
    """A gateway's process and its port."""

    process: Process
    port: int

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"


@dataclass
class Stack:
    """The installation. Its processes are killed when the block of `open` ends."""

    folder: Path
    server: ServerHandle
    store_url: str
    client: Client
    tokens: dict[str, str] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, folder: Path, store_url: str = "", *, project: Path = PROJECT, people: Sequence[str] = ("ana", "rui")
    ) -> AsyncIterator[Self]:
        """Make keys and tokens in `folder`, over the store at `store_url` (default: SQLite)."""
        options = ServerOptions(folder / "temporal.db", port=free_port(), ui_port=None)
        async with run_server(options) as server:
            url = store_url or f"sqlite:///{folder}/signoff.db"
            # A client that only counts and watches: it reads no encrypted data.
            stack = cls(folder, server, url, await server.connect())
            shutil.copytree(project, folder / "project")
            try:
                await stack.run("keys", "create")
                (folder / "worker").mkdir(mode=0o700)
                await stack.run("keys", "export", "--out", str(folder / "worker" / "public-keys.json"))
                shutil.copy2(folder / "gateway" / "encryption-keys.json", folder / "worker")
                for person in people:
                    await stack.make_token(person, *SCOPES)
                yield stack
            finally:
                for process in stack.processes:
                    await kill(process)
                # A caller may have killed the server and started another.
                await stack.server.stop()

    def environment(self, who: str, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SIGNOFF_", "TEMPORAL_"))}
        return kept | {
            "SIGNOFF_PROFILE": "production",
            "SIGNOFF_MANIFEST": str(self.folder / "project" / "signoff.yaml"),
            "SIGNOFF_STATE_DIR": str(self.folder / who),
            "SIGNOFF_STORE_URL": self.store_url,
            "TEMPORAL_ADDRESS": self.server.options.address,
            **more,
        }

    async def make_token(self, subject: str, *scopes: str) -> None:
        words = [word for scope in scopes for word in ("--scope", scope)]
        made = await self.run("token", "create", subject, *words)
        self.tokens[subject] = next(word for word in made.output.split() if word.startswith("sgf_"))

    async def run(self, *words: str, **more: str) -> CommandTime:
        """Raises `StackFailed` with the command's output."""
        return await asyncio.to_thread(self._run, words, self.environment("gateway", **more))

    def _run(self, words: Sequence[str], environment: dict[str, str]) -> CommandTime:
        # Usage counts ended children, and no other child ends during the command.
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            _signoff(words), env=environment, cwd=self.folder, capture_output=True, text=True, check=False
        )
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise StackFailed(f"`signoff {' '.join(words[:2])}` said: {done.stderr.strip()}")
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return CommandTime(wall, spent, done.stdout)

    async def start_worker(self) -> Process:
        """Return when the worker polls."""
        return await self._start("worker", self.environment("worker"))

    async def start_gateway(self, port: int = 0, **more: str) -> Gateway:
        """Take a free port by default. Return when the gateway answers."""
        port = port or free_port()
        where = {"SIGNOFF_PORT": str(port), "SIGNOFF_PUBLIC_URL": f"http://{LOOPBACK}:{port}", **more}
        return Gateway(await self._start("gateway", self.environment("gateway", **where)), port)

    def http(self, gateway: Gateway, person: str) -> httpx2.AsyncClient:
        limits = httpx2.Limits(max_connections=300, max_keepalive_connections=300)
        headers = {"authorization": f"Bearer {self.tokens[person]}"}
        return httpx2.AsyncClient(base_url=gateway.address, headers=headers, timeout=60, limits=limits)

    async def waiting(self) -> int:
        return (await self.client.count_workflows("SignoffState = 'suspended'")).count

    async def _start(self, kind: str, environment: dict[str, str]) -> Process:
        with (self.folder / f"{kind}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *_signoff((kind, "--json")), env=environment, stdin=DEVNULL, stdout=PIPE, stderr=log, cwd=self.folder
            )
        self.processes = [each for each in self.processes if each.returncode is None] + [process]
        if process.stdout is None:
            raise RuntimeError("its output is a pipe")
        # With `--json` it prints its address when it is ready; the log is on the other stream.
        ready = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_READY_SECONDS):
                ready = await process.stdout.readline()
        if not ready.startswith(b"{"):
            await kill(process)
            raise StackFailed(f"the {kind} did not start: {(self.folder / f'{kind}.log').read_text()[-600:]}")
        return process


async def kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


def resident_mb(pid: int) -> float:
    """Include the process's children."""
    top = psutil.Process(pid)
    return sum(each.memory_info().rss for each in (top, *top.children(recursive=True))) / 1e6


def size_mb(*files: Path) -> float:
    """Include SQLite's side files."""
    found = [beside for each in files for beside in each.parent.glob(f"{each.name}*")]
    return sum(each.stat().st_size for each in found) / 1e6


async def answer_of(http: httpx2.AsyncClient, path: str, **params: Any) -> Any:
    """Raise `StackFailed` for any other status than 200."""
    answer = await http.get(path, params=params)
    if answer.status_code != httpx2.codes.OK:
        raise StackFailed(f"{path} answered {answer.status_code}: {answer.text[:300]}")
    return answer.json()


def _signoff(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "signoff.cli.main", *words]
