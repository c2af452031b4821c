"""Serves a fake vendor on a port of this machine: real HTTP, for tests of channels."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn


class _Quiet(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, then it is told."""
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Nothing: signals are the test runner's."""
        yield


@asynccontextmanager
async def served(app: Any, *, certificate: Path | None = None, key: Path | None = None) -> AsyncIterator[str]:
    """`app` (ASGI) at the address that is given, such as `http://127.0.0.1:40123`, until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_level="error", lifespan="off", ws="none", timeout_graceful_shutdown=1)
        if certificate is not None:
            config.ssl_certfile, config.ssl_keyfile = certificate, key
            config.ssl_version = ssl.PROTOCOL_TLS_SERVER
        server = _Quiet(config)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        await server.ready.wait()
        try:
            yield f"http{'s' if certificate else ''}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running
