"""The backend of `process`: runs declared programs without a shell and within limits."""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from typing import Final

from signoff.contracts.limits import MIB
from signoff.registry.capabilities import Capabilities, CapabilityError, ProgramResult

PROGRAM_SECONDS: Final = 30.0
"""Default time limit of a program."""
OUTPUT_BYTES: Final = 1 * MIB
"""Maximum size of each output of a program."""
_NAME_CHARS: Final = 200


class Programs:
    """Finds a program once, at start: a later change of `PATH` selects no other."""

    def __init__(self) -> None:
        self._paths: dict[str, str] = {}

    def problem(self, declared: Capabilities) -> str:
        """Return a sentence about a declared program that this machine lacks, or ""."""
        lacking = next((name for name in declared.process if not self._path(name)), "")
        return f"the program `{lacking}`, which is not on this machine: install it, or name its path" if lacking else ""

    def resolve(self, declared: Capabilities, tenant: str) -> object:
        paths = {name: self._path(name) for name in declared.process}
        return _Runner(paths, declared.environment)

    def _path(self, name: str) -> str:
        found = self._paths.get(name) or _find_program(name)
        if found:
            self._paths[name] = found
        return found


class _Runner:
    def __init__(self, paths: Mapping[str, str], environment: tuple[str, ...]) -> None:
        self._paths = paths
        self._environment = environment

    async def run(
        self, program: str, *arguments: str, content: bytes = b"", seconds: float = PROGRAM_SECONDS
    ) -> ProgramResult:
        path = self._paths.get(program)
        if not path:
            raise CapabilityError("BINARY_NOT_ALLOWED", str(program)[:_NAME_CHARS])
        # Read the variables for each run: a new value needs no new worker. No other variable reaches a program.
        env = {name: os.environ[name] for name in self._environment if name in os.environ}
        with tempfile.TemporaryDirectory(prefix="signoff-", ignore_cleanup_errors=True) as folder:
            try:
                transport, found = await asyncio.get_running_loop().subprocess_exec(
                    lambda: _Conversation(program),
                    program,
                    *arguments,
                    executable=path,
                    cwd=folder,
                    env=env,
                    # The program gets its own process group, so that its children end with it, unless they leave the
                    # group.
                    start_new_session=True,
                )
            except OSError as error:
                why = f"{program[:_NAME_CHARS]} cannot be started ({type(error).__name__})"
                raise CapabilityError("BINARY_NOT_ALLOWED", why) from None
            try:
                found.say(content)
                async with asyncio.timeout(seconds):
                    await asyncio.shield(found.over)
            except TimeoutError:
                raise TimeoutError(f"{program[:_NAME_CHARS]} did not end within {seconds:g} s") from None
            finally:
                found.kill()
                transport.close()
                # Wait for the process, so that no call leaves one unreaped.
                await asyncio.shield(found.closed)
        return ProgramResult(transport.get_returncode() or 0, bytes(found.written[1]), bytes(found.written[2]))


class _Conversation(asyncio.SubprocessProtocol):
    """Reads a program's output up to the limit.

    `over` is done at the program's end or the limit, `closed` once the process and all of its pipes are gone.
    """

    def __init__(self, program: str) -> None:
        self._program = program
        self._transport: asyncio.SubprocessTransport | None = None
        self.written = {1: bytearray(), 2: bytearray()}
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A stopped call never reads its program's result.
        self.over.add_done_callback(lambda over: over.cancelled() or over.exception())
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.SubprocessTransport):
            self._transport = transport

    def say(self, content: bytes) -> None:
        """The program may ignore its input."""
        stdin = None if self._transport is None else self._transport.get_pipe_transport(0)
        if isinstance(stdin, asyncio.WriteTransport):
            stdin.write(content)
            stdin.write_eof()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        body = self.written[fd]
        if len(body) + len(data) > OUTPUT_BYTES:
            if not self.over.done():
                why = f"{self._program[:_NAME_CHARS]} wrote more than {OUTPUT_BYTES} bytes"
                self.over.set_exception(CapabilityError("REPLY_TOO_LARGE", why))
            return
        body += data

    def process_exited(self) -> None:
        # Children left behind would keep the outputs open.
        self.kill()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)
        if not self.closed.done():
            self.closed.set_result(None)

    def kill(self) -> None:
        """Kill the program and its children. The process ends once all of them have."""
        pid = None if self._transport is None else self._transport.get_pid()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if pid is not None:
                os.killpg(pid, signal.SIGKILL)


def _find_program(name: str) -> str:
    if os.path.isabs(name):
        return name if os.path.isfile(name) and os.access(name, os.X_OK) else ""
    # Use absolute directories only: `.` in `PATH` would run a file of the worker's start directory.
    places = (each for each in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(each))
    return shutil.which(name, path=os.pathsep.join(places)) or ""
