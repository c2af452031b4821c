import asyncio
import sys
from dataclasses import dataclass, field
from pathlib import Path

from served_stack import MANIFEST

from signoff.temporal.embedded_server import free_port

READY = "Ctrl-C stops everything"
START_SECONDS = 60
STOP_SECONDS = 60


@dataclass
class Dev:
    folder: Path
    manifest: Path = MANIFEST
    ports: tuple[int, int] = field(default_factory=lambda: (free_port(), free_port()))
    process: asyncio.subprocess.Process | None = None
    lines: list[str] = field(default_factory=list)

    async def start(self, *arguments: str) -> None:
        ports = ("--port", str(self.ports[0]), "--temporal-port", str(self.ports[1]), "--no-ui")
        self.lines = []
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "signoff.cli.main", "dev", str(self.manifest), *ports, *arguments),
            cwd=self.folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(START_SECONDS):
            while not self.lines or (READY not in self.lines[-1] and not self.lines[-1].startswith("{")):
                line = await self._line()
                assert line, f"dev ended: {''.join(self.lines)}"

    async def end(self, number: int) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        async with asyncio.timeout(STOP_SECONDS):
            while await self._line():
                pass
            return await self.process.wait()

    async def _line(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        self.lines.append((await self.process.stdout.readline()).decode())
        return self.lines[-1]
