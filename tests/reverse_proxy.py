"""What stands in front of several gateways: a proxy that passes each connection on to one that answers."""

import asyncio
import contextlib
import itertools
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Sequence

_BLOCK = 64 * 1024


@contextlib.asynccontextmanager
async def running_proxy(port: int, behind: Sequence[int]) -> AsyncIterator[None]:
    """Passes connections to `port` on to the ports `behind`, in turn; one where nobody listens is left out."""
    turn = itertools.count()

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        first = next(turn)
        for number in range(len(behind)):
            with contextlib.suppress(OSError):
                other = await asyncio.open_connection("127.0.0.1", behind[(first + number) % len(behind)])
                await asyncio.gather(_pass(reader, other[1]), _pass(other[0], writer))
                return
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    async with server:
        yield


async def _pass(reader: StreamReader, writer: StreamWriter) -> None:
    """Passes on what comes until it ends, or either side is gone."""
    with contextlib.suppress(OSError):
        while block := await reader.read(_BLOCK):
            writer.write(block)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()
