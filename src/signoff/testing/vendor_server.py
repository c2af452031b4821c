"""Serves a fake vendor on a local port: real HTTP for tests of channels."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import uvicorn

from signoff.testing.vendor import Vendor

_TICK: Final = 0.1
"""Seconds between two periodic checks of the server, as in uvicorn."""
_GLANCE: Final = 0.002
_GLANCES: Final = 500
"""The number of checks for requests in flight during a stop."""


class _Quiet(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready, self.stop = asyncio.Event(), asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        """Notice the stop at once: uvicorn's server needs up to 0.1 s in each test."""
        counter = 0
        while not await self.on_tick(counter):
            counter += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), _TICK)
            self.should_exit = self.stop.is_set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Skip the pause of uvicorn's server of 0.1 s."""
        for each in [*self.servers, *(sockets or ())]:
            each.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        # Cut off the requests that are still open, as uvicorn does.
        for _ in range(_GLANCES):
            if not (self.server_state.connections or self.server_state.tasks):
                break
            await asyncio.sleep(_GLANCE)
        for task in self.server_state.tasks:
            task.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to the test runner."""
        yield


def _answer(status: int, body: bytes, *, promised: int = 0, **headers: str) -> list[dict[str, Any]]:
    head = {"content-length": str(promised or len(body)), "content-type": "application/json", **headers}
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in head.items()]
    start = {"type": "http.response.start", "status": status, "headers": named}
    return [start, {"type": "http.response.body", "body": body, "more_body": promised > len(body)}]


_TROUBLES: Final[Mapping[str, list[dict[str, Any]]]] = {
    "limited": _answer(429, b"", retry_after="7"),
    "fault": _answer(500, b"<html>Internal Server Error</html>"),
    "garbage": _answer(200, b"[" * 100_000),
    # Fewer bytes than promised: uvicorn closes the connection in the middle of the answer.
    "cut": _answer(200, b'{"ok": true', promised=1_000),
}


def troubled_app(app: Any, vendor: Vendor) -> Any:
    """Play the vendor's HTTP `trouble`, and else call `app`."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        trouble = _TROUBLES.get(vendor.trouble) if scope["type"] == "http" else None
        if trouble is None:
            await app(scope, receive, send)
            return
        # Read the whole request: otherwise the next one on the connection would begin with its rest.
        while (await receive()).get("more_body"):
            pass
        for message in trouble:
            await send(message)

    return answer


@asynccontextmanager
async def serve_vendor(
    app: Any, *, vendor: Vendor | None = None, certificate: Path | None = None, key: Path | None = None
) -> AsyncIterator[str]:
    """Serve `app` (ASGI) until the block ends. Yields the address, such as `http://127.0.0.1:40123`.

    With a `vendor`, it plays that vendor's HTTP troubles.
    """
    app = app if vendor is None else troubled_app(app, vendor)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_level="error", lifespan="off", ws="none")
        if certificate is not None:
            config.ssl_certfile, config.ssl_keyfile = certificate, key
            config.ssl_version = ssl.PROTOCOL_TLS_SERVER
        server = _Quiet(config)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        await server.ready.wait()
        try:
            yield f"http{'s' if certificate else ''}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.stop.set()
            await running
