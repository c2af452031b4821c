import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import uvicorn

from signoff.contracts.limits import IDLE_SECONDS


@contextlib.asynccontextmanager
async def running_app(app: Any, port: int, *, grace: int | None = None) -> AsyncIterator[None]:
    """At the end of the block, running requests have `grace` seconds. Without it they are answered first."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=port,
        log_level="warning",
        lifespan="off",
        timeout_graceful_shutdown=grace,
        # As in the gateway: with uvicorn's own value, a client on a busy machine uses a closing connection.
        timeout_keep_alive=round(IDLE_SECONDS),
    )
    server = uvicorn.Server(config)
    # The signals belong to the test run.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]
    serving = asyncio.create_task(_serve(server))
    while not server.started:
        await asyncio.sleep(0.01)
        if serving.done():
            await serving
    try:
        yield
    finally:
        server.should_exit = True
        await serving


async def _serve(server: uvicorn.Server) -> None:
    try:
        await server.serve()
    except SystemExit:
        # A task that ended like this would end the whole test run.
        raise OSError(f"port {server.config.port} is taken") from None
