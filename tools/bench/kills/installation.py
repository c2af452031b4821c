"""The installation under attack: one worker, one gateway and one Temporal server over one store."""

from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from signoff.contracts.errors import SignoffError
from signoff.temporal.embedded_server import free_port, start_server
from signoff.temporal.server_connection import LOOPBACK
from tools.bench.kills.nemesis import CannotStart
from tools.bench.scale.stack import Stack, StackFailed, kill

PROJECT = Path(__file__).parent / "project"
PEOPLE = ("ana", "bo", "rui")
AGENT = "coder"


class Installation:
    """Kills and starts the processes of a stack. Each keeps its files and address."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.address = ""
        self._port = free_port()
        self._running: dict[str, Process] = {}
        self._server_killed = False

    @classmethod
    @asynccontextmanager
    async def open(cls, folder: Path, store_url: str) -> AsyncIterator[Self]:
        async with Stack.open(folder, store_url, project=PROJECT, people=PEOPLE) as stack:
            await stack.make_token(AGENT, "call")
            installation = cls(stack)
            installation.address = f"http://{LOOPBACK}:{installation._port}"
            for name in ("worker", "gateway"):
                await installation.start(name)
            yield installation

    async def kill(self, name: str) -> None:
        if name == "temporal":
            await self.stack.server.kill()
        else:
            await kill(self._running.pop(name))

    async def start(self, name: str) -> None:
        """Return once the process is ready. Raises `CannotStart`."""
        try:
            if name == "temporal":
                self.stack.server = await start_server(self.stack.server.options)
            elif name == "worker":
                self._running[name] = await self.stack.start_worker()
            else:
                self._running[name] = (await self.stack.start_gateway(self._port)).process
        except (StackFailed, SignoffError, TimeoutError) as error:
            raise CannotStart(f"{type(error).__name__}: {error}") from error

    def has_ended(self, name: str) -> bool:
        process = self._running.get(name)
        return process is not None and process.returncode is not None
