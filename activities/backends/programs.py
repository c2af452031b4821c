"""The backend of `process`: runs the programs that a tool declares, without a shell and within limits (E47)."""

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
"""How long a program has where the handler says no other time."""
OUTPUT_BYTES: Final = 1 * MIB
"""The most that a program may write to each of its outputs."""
_NAME_CHARS: Final = 200


class Programs:
    """Provides declared programs. A program is found once, at start: a later change of `PATH` brings up no other."""

    def __init__(self) -> None:
        self._paths: dict[str, str] = {}

    def problem(self, declared: Capabilities) -> str:
        """Returns which declared program this machine lacks; empty if it has all of them."""
        lacking = next((name for name in declared.process if not self._path(name)), "")
        return f"the program `{lacking}`, which is not on this machine: install it, or name its path" if lacking else ""

    def resolve(self, declared: Capabilities, tenant: str) -> object:
        """Returns the declared programs."""
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
        # Read anew: a new value needs no new worker. Nothing else of the worker's environment reaches a program.
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
                    # A group of its own, so that whatever it starts ends with it, unless that leaves the group.
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
                # No call leaves a process behind that nobody has waited for.
                await asyncio.shield(found.closed)
        return ProgramResult(transport.get_returncode() or 0, bytes(found.written[1]), bytes(found.written[2]))


class _Conversation(asyncio.SubprocessProtocol):
    """Reads what a program writes, up to the limit, and sees it end.

    `over` is done once it has ended, or wrote too much; `closed` once nothing of it is left.
    """

    def __init__(self, program: str) -> None:
        self._program = program
        self._transport: asyncio.SubprocessTransport | None = None
        self.written = {1: bytearray(), 2: bytearray()}
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Of a call that was stopped nobody asks what came of its program.
        self.over.add_done_callback(lambda over: over.cancelled() or over.exception())
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.SubprocessTransport):
            self._transport = transport

    def say(self, content: bytes) -> None:
        """Gives the program its input, which it need not read."""
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
        # What it left behind would keep its outputs open for as long as it likes.
        self.kill()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)
        if not self.closed.done():
            self.closed.set_result(None)

    def kill(self) -> None:
        """Kills the program with all that it started, which is gone once all of it has ended."""
        pid = None if self._transport is None else self._transport.get_pid()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if pid is not None:
                os.killpg(pid, signal.SIGKILL)


def _find_program(name: str) -> str:
    if os.path.isabs(name):
        return name if os.path.isfile(name) and os.access(name, os.X_OK) else ""
    # Absolute places alone: `.` in `PATH` would run what lies in the folder where the worker happened to start.
    places = (each for each in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(each))
    return shutil.which(name, path=os.pathsep.join(places)) or ""
