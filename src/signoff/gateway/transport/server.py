"""Runs the gateway on a port until it is asked to stop."""

import asyncio
import contextlib
import logging
import resource
import socket
from collections.abc import AsyncIterator, Callable
from typing import Final

from starlette.applications import Starlette

from signoff.contracts.limits import CONNECTIONS, IDLE_SECONDS
from signoff.gateway.live import Live
from signoff.gateway.transport.connection_limit import BoundedConnection
from signoff.telemetry.http_server import HttpServer, open_listener

_log = logging.getLogger(__name__)
_OWN_FILES: Final = 200
"""Open files of a gateway beside its connections: the store, Temporal, pages, keys, people."""
GRACE_SECONDS: Final = 5
"""How long requests that are under way may take once the gateway stops."""


async def serve(
    app: Starlette,
    host: str,
    port: int,
    *,
    stop: asyncio.Event | None = None,
    ready: Callable[[], None] | None = None,
    setting: str = "SIGNOFF_PORT",
) -> None:
    """Serves `app` until `stop` is set or the task is cancelled, then lets requests finish and returns.

    `ready` is called once the port answers; `setting` names the port. Signals are the caller's matter. Raises
    `ServerUnavailable` naming the setting when the port is taken or the address is not this machine's.
    """
    with open_listener(host, port, host_setting="SIGNOFF_HOST", port_setting=setting) as listener:
        server = _Server(app, ready)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        asked = asyncio.create_task((stop or asyncio.Event()).wait())
        try:
            await asyncio.wait((running, asked), return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            server.should_exit = True
            await asyncio.shield(running)


@contextlib.asynccontextmanager
async def running_server(
    app: Starlette, host: str, port: int, *, setting: str = "SIGNOFF_PORT"
) -> AsyncIterator[asyncio.Task[None]]:
    """Serves `app`, which answers when the block begins, until it ends. Raises as `serve`."""
    stop, ready = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(serve(app, host, port, stop=stop, ready=ready.set, setting=setting))
    waiting = asyncio.create_task(ready.wait())
    try:
        # Whichever is first: where the port is taken the server ends and is never ready.
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield task
    finally:
        waiting.cancel()
        stop.set()
        await asyncio.gather(task, return_exceptions=True)


def allow_connections() -> int:
    """Raises this process's limit of open files to what its connections need; returns how many there may be.

    Without a file for each, a stranger who holds some connections open would take the store's files as well.
    """
    wanted = CONNECTIONS + _OWN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        # A system may allow less than it says (macOS); then what there was stays.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return CONNECTIONS
    most = max(soft - _OWN_FILES, 1)
    _log.warning("only %d connections at once: raise this process's hard limit of open files to %d", most, wanted)
    return most


class _Server(HttpServer):
    """Says when it answers, and ends live streams before it waits for requests."""

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
        """Starts as uvicorn does, then tells the caller."""
        await super().startup(sockets)
        if self._ready is not None and self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the streams, which never end by themselves, then stops as uvicorn does."""
        self._live.close()
        await super().shutdown(sockets)
