import asyncio
import contextlib
import json
import os
import tempfile
import time
import uuid
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from client_rig import ClientRig
from environments import environment
from polling import pauses

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
Args = dict[str, Any]


@dataclass
class Case:
    """The calls of its model, turn by turn."""

    turns: tuple[tuple[tuple[str, Args], ...], ...]
    conversation: str = field(default_factory=lambda: uuid.uuid4().hex)
    ids: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The prefix of the model's call ids."""
    keys: str = field(default_factory=lambda: tempfile.mkstemp(prefix="keys")[1])
    """The file with the key of each proposed call."""

    def spoken(self) -> list[list[dict[str, Any]]]:
        return [
            [
                {"name": name, "args": args, "id": f"{self.ids}-{turn}-{at}", "message": f"{self.conversation}-{turn}"}
                for at, (name, args) in enumerate(calls)
            ]
            for turn, calls in enumerate(self.turns)
        ]

    async def first_key(self) -> str:
        return await asyncio.to_thread(self._first_key)

    def _first_key(self) -> str:
        args = self.turns[0][0][1]
        for pause in pauses():
            for line in Path(self.keys).read_text().splitlines():
                key, proposed = json.loads(line)
                if proposed == args:
                    return str(key)
            time.sleep(pause)
        raise AssertionError("the call was not proposed")


@dataclass
class FrameworkProgram:
    name: str
    process: Process
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def play(
        self,
        rig: ClientRig,
        case: Case,
        *,
        url: str = "",
        wait: float | None = None,
        tool: str = "refund",
        shim: float | None = None,
    ) -> dict[str, Any]:
        """Return the final text and the refunds that ran.

        With `shim` the agent uses the Agent Approval Protocol and gives up after this number of seconds.
        """
        given = {"url": url or rig.url, "token": rig.token, "turns": case.spoken(), "wait": wait, "tool": tool}
        given |= {"shim": shim, "conversation": case.conversation, "keys": case.keys}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        async with self.lock:
            self.process.stdin.write(json.dumps(given).encode() + b"\n")
            await self.process.stdin.drain()
            line = await self.process.stdout.readline()
        assert line, f"the program of {self.name} has ended"
        found: dict[str, Any] = json.loads(line)
        return found


@contextlib.asynccontextmanager
async def framework_program(name: str) -> AsyncIterator[FrameworkProgram]:
    """Python runs `programs/<name>_program.py`, whose environment is created once."""
    if name == "vercel":
        command = ("node", ROOT / "tests" / "vercel_packages" / "program.mjs")
    else:
        python = await asyncio.to_thread(environment, "frameworks", HERE / "frameworks.txt")
        command = (python, HERE / "programs" / f"{name}_program.py")
    paths = (ROOT / "clients" / "python", ROOT / "examples")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("SIGNOFF_", "TEMPORAL_"))}
    variables |= {"PYTHONPATH": ":".join(map(str, paths)), "PYTHONDONTWRITEBYTECODE": "1"}
    process = await asyncio.create_subprocess_exec(*command, env=variables, stdin=PIPE, stdout=PIPE)
    try:
        yield FrameworkProgram(name, process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
