import asyncio
import subprocess
import sys

import httpx2
import pytest
import uvicorn
from app_server import running_app
from fastapi import FastAPI

from signoff.contracts.limits import CONNECTIONS, IDLE_SECONDS
from signoff.gateway.live import Live
from signoff.gateway.transport import server
from signoff.gateway.transport.server import BoundedConnection
from signoff.temporal.embedded_server import free_port
from signoff.temporal.server_connection import LOOPBACK

_STARTED = """
import logging, resource, sys
logging.basicConfig(format="%(message)s")
resource.setrlimit(resource.RLIMIT_NOFILE, (256, int(sys.argv[1])))
from signoff.gateway.transport.server import allow_connections
print(allow_connections(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("hard", "connections", "files", "expected"),
    [
        (8_192, CONNECTIONS, CONNECTIONS + 200, ""),
        (512, 312, 512, "only 312 connections at once: raise this process's hard limit of open files to 4200\n"),
    ],
)
def test_gateway_has_an_open_file_for_each_connection(hard: int, connections: int, files: int, expected: str) -> None:
    made = subprocess.run(
        [sys.executable, "-c", _STARTED, str(hard)], capture_output=True, text=True, check=True, timeout=60
    )
    assert (made.stdout.split(), made.stderr) == ([str(connections), str(files)], expected)


async def test_idle_connection_stays_open_longer_than_a_proxy_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a proxy sends a request into a closing connection. The test failed with uvicorn's own 5 seconds."""
    kept: list[float] = []

    class Noted(BoundedConnection):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            kept.append(self.timeout_keep_alive)
            super().connection_made(transport)

    monkeypatch.setattr(server, "BoundedConnection", Noted)
    app, port = FastAPI(), free_port()
    app.state.live = Live()
    async with server.running_server(app, LOOPBACK, port), httpx2.AsyncClient(timeout=60) as http:
        assert (await http.get(f"http://{LOOPBACK}:{port}/")).status_code == 404
    assert kept == [IDLE_SECONDS]
    assert IDLE_SECONDS > 60


async def test_application_of_a_test_keeps_idle_connections_as_long_as_a_gateway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a client on a busy machine sends into a closing connection, and its test fails."""
    kept: list[float] = []

    class Noted(uvicorn.Config):
        def load(self) -> None:
            kept.append(self.timeout_keep_alive)
            super().load()

    monkeypatch.setattr(uvicorn, "Config", Noted)
    port = free_port()
    async with running_app(FastAPI(), port), httpx2.AsyncClient(timeout=60) as http:
        assert (await http.get(f"http://{LOOPBACK}:{port}/")).status_code == 404
    assert kept == [IDLE_SECONDS]
