"""Runs the gateway on a port until it is asked to stop."""

import asyncio
import contextlib
import logging
import resource
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from ipaddress import ip_address
from typing import Any, Final

import h11
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from signoff.contracts.limits import CONNECTIONS, CONNECTIONS_OF_ONE, HEADER_SECONDS, IDLE_SECONDS
from signoff.gateway.live import Live
from signoff.telemetry.http_server import HttpServer, open_listener

_PIECE_BYTES: Final = 2_048
"""Most bytes to parse before checking the request. h11 takes some 10 microseconds for each chunk of a body, however
small. 256 KiB of chunks of one byte would block all requests for half a second."""

_log = logging.getLogger(__name__)
_OWN_FILES: Final = 200
"""Open files that a gateway needs besides connections: the store, Temporal, pages, keys, people."""
GRACE_SECONDS: Final = 5
"""Time that running requests get to finish once the gateway stops."""


async def serve(
    app: Starlette,
    host: str,
    port: int,
    *,
    stop: asyncio.Event | None = None,
    ready: Callable[[], None] | None = None,
    setting: str = "SIGNOFF_PORT",
) -> None:
    """Serve until `stop` is set or the task is cancelled, then let requests finish.

    Calls `ready` once the port answers. The caller handles signals. Raises `ServerUnavailable` if the port is taken or
    the address does not belong to this machine. `setting` is the port's setting for the message.
    """
    with open_listener(host, port, host_setting="SIGNOFF_HOST", port_setting=setting) as listener:
        server = _Server(app, ready)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        stopping = asyncio.create_task((stop or asyncio.Event()).wait())
        try:
            await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            server.should_exit = True
            await asyncio.shield(running)


@contextlib.asynccontextmanager
async def running_server(
    app: Starlette, host: str, port: int, *, setting: str = "SIGNOFF_PORT"
) -> AsyncIterator[asyncio.Task[None]]:
    """The port answers when the block begins. Raises like `serve`."""
    stop, ready = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(serve(app, host, port, stop=stop, ready=ready.set, setting=setting))
    waiting = asyncio.create_task(ready.wait())
    try:
        # Wait for either: if the port is taken, the server ends and is never ready.
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield task
    finally:
        waiting.cancel()
        stop.set()
        await asyncio.gather(task, return_exceptions=True)


def allow_connections() -> int:
    """Raise the process's limit of open files, and return the number of connections allowed.

    Each connection takes a file. Without this limit, an attacker could hold connections open until none are left for
    the store.
    """
    wanted = CONNECTIONS + _OWN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        # A system may allow less than it reports (macOS). Then keep the current limit.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return CONNECTIONS
    most = max(soft - _OWN_FILES, 1)
    _log.warning("only %d connections at once: raise this process's hard limit of open files to %d", most, wanted)
    return most


class _Server(HttpServer):
    """Reports when it answers, and ends live streams before it waits for requests."""

    def __init__(self, app: Starlette, ready: Callable[[], None] | None) -> None:
        super().__init__(
            app,
            http=BoundedConnection,
            limit_concurrency=allow_connections(),
            timeout_keep_alive=round(IDLE_SECONDS),
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        self._live: Live = app.state.live
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._ready is not None and self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the live streams, which would never end, before uvicorn stops."""
        self._live.close()
        await super().shutdown(sockets)


class BoundedConnection(H11Protocol):
    """Adds a timeout for headers to uvicorn's connection.

    Ignores bodies of requests that will be refused. uvicorn closes an idle connection between two requests, but not one
    that has sent nothing yet, or only half of a request.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._late: asyncio.TimerHandle | None = None
        self._deaf = False
        self._address = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        _send_at_once(transport)
        address = _address(transport)
        if address and _OPEN[address] >= CONNECTIONS_OF_ONE:
            # Send no response: a client that opens this many connections would not read it.
            transport.abort()
            return
        self._address = address
        if address:
            _OPEN[address] += 1
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address:
            _OPEN[self._address] -= 1
            if not _OPEN[self._address]:
                del _OPEN[self._address]
            self._address = ""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), _PIECE_BYTES):
            if self._deaf or self.transport.is_closing():
                return
            super().data_received(data[start : start + _PIECE_BYTES])
            self._deaf = self._deaf or (self._is_receiving() and _is_chunked(self.headers))
        if self._deaf:
            self.flow.pause_reading()
        elif self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._late is None:
            self._wait_for_headers()

    def _is_receiving(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY

    def _wait_for_headers(self) -> None:
        self._late = self.loop.call_later(HEADER_SECONDS, self._hang_up)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _hang_up(self) -> None:
        self._late = None
        # Do not close during a request: its headers arrived in time, and its response may take any time.
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()


_OPEN: Final[Counter[str]] = Counter()
"""Open connections of each address."""


def _send_at_once(transport: asyncio.Transport) -> None:
    """Set `TCP_NODELAY`.

    Otherwise, the body waits until the client confirms the head, which a client may delay for 40 ms. asyncio sets the
    option only on sockets that report TCP as their protocol. Sockets of `socket.create_server` do not.
    """
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _address(transport: asyncio.Transport) -> str:
    """Return "" for this machine, where a proxy serves many clients."""
    peer = transport.get_extra_info("peername")
    try:
        host = ip_address(peer[0])
    except (TypeError, ValueError, IndexError):
        return ""
    return "" if host.is_loopback else str(host)


def _is_chunked(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(name == b"transfer-encoding" for name, _ in headers)
