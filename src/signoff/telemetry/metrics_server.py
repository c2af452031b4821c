"""Answers scrapes and probes on a separate port: only `GET /metrics`, `/healthz` and `/readyz`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from signoff.telemetry.http_server import HttpServer, open_listener

PATH: Final = "/metrics"
HEALTH: Final = "/healthz"
PROBES: Final = (HEALTH, "/readyz")
_CONNECTIONS: Final = 16
_GRACE_SECONDS: Final = 2
Scrape = Callable[[str], Awaitable[tuple[str, bytes]]]
"""Answers a scrape by its `Accept` header: content type and bytes."""


@contextlib.asynccontextmanager
async def running_metrics_server(
    scrape: Scrape, host: str, port: int, is_ready: Callable[[], bool] = lambda: True
) -> AsyncIterator[None]:
    """Answer scrapes and probes until the block ends. `/readyz` is 503 while the process is not ready.

    Raises `ServerUnavailable` with the setting if it cannot listen.
    """
    settings = {"host_setting": "SIGNOFF_METRICS_HOST", "port_setting": "SIGNOFF_METRICS_PORT"}
    with open_listener(host, port, **settings) as listener:
        server = HttpServer(
            _application(scrape, is_ready),
            lifespan="off",
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield
        finally:
            server.should_exit = True
            await asyncio.gather(running, return_exceptions=True)


def _application(scrape: Scrape, is_ready: Callable[[], bool]) -> Any:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        status, kind, body = 404, "text/plain", b"metrics are at /metrics\n"
        if scope["type"] == "http" and scope["path"] == PATH:
            if scope["method"] in ("GET", "HEAD"):
                kind, body = await scrape(_accept(scope["headers"]))
                status = 200
            else:
                status, body = 405, b"metrics are only read\n"
        elif scope["type"] == "http" and scope["path"] in PROBES:
            # Any answer shows that the event loop, which all work needs, is not blocked.
            is_well = scope["path"] == HEALTH or is_ready()
            status, body = (200, b"ok\n") if is_well else (503, b"not ready\n")
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return answer


def _accept(headers: list[tuple[bytes, bytes]]) -> str:
    return next((value.decode("latin-1") for name, value in headers if name == b"accept"), "")
