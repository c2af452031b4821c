import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from signoff.channels.standard_webhooks import verify_id

KEY = b"k" * 32


@dataclass
class Receiver:
    port: int = 0
    answers: list[int] = field(default_factory=list)
    """The statuses of the next answers, and 200 after them."""
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        body = await reader.readexactly(int(headers["content-length"]))
        self.requests.append((headers, body))
        status = self.answers.pop(0) if self.answers else 200
        writer.write(f"HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    @property
    def events(self) -> list[dict[str, Any]]:
        for headers, body in self.requests:
            verify_id([KEY], headers, body, datetime.now(UTC))
        return [json.loads(body) for _, body in self.requests]


@asynccontextmanager
async def running_receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    async with server:
        found.port = server.sockets[0].getsockname()[1]
        yield found
