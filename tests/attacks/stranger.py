import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from attack_site import MANIFEST

MAIL_SECRET = "edge-mail-secret"
_CHANNELS = f"""
channels:
  mail:
    kind: email
    sender: approvals@example.com
    smtp: {{host: 127.0.0.1, port: 9, tls: none}}
    inbound: {{webhook: {{shape: mailgun, secret: "env:EDGE_MAIL_SECRET"}}}}
  texts:
    kind: twilio
    via: sms
    account_sid: AC{"0" * 32}
    auth_token: "env:EDGE_SMS_TOKEN"
    sender: "+14155238886"
routing: {{default: [mail]}}
"""


def channel_settings(folder: Path) -> dict[str, str]:
    """Also write the manifest to `folder`."""
    for file in MANIFEST.parent.iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    (folder / MANIFEST.name).write_text(MANIFEST.read_text() + _CHANNELS)
    return {
        "SIGNOFF_MANIFEST": str(folder / MANIFEST.name),
        "EDGE_MAIL_SECRET": MAIL_SECRET,
        "EDGE_SMS_TOKEN": "edge-sms-token",
    }


@dataclass
class Answered:
    """The status is 0 if the connection closed without one."""

    status: int
    body: str
    sent: int


@dataclass
class Line:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> bool:
        try:
            self.writer.write(data)
            await self.writer.drain()
        except (ConnectionError, OSError):
            return False
        return not self.reader.at_eof()

    async def answer(self, seconds: float = 60) -> tuple[int, str]:
        """The status is 0 if the gateway closes without an answer."""
        try:
            async with asyncio.timeout(seconds):
                received = await self.reader.read(1 << 20)
        except ConnectionError:
            return 0, ""
        head, _, body = received.decode("latin-1").partition("\r\n\r\n")
        return (int(head.split()[1]), body) if head.startswith("HTTP/") else (0, head)


@contextlib.asynccontextmanager
async def dialled(url: str) -> AsyncIterator[Line]:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield Line(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, OSError):
            await writer.wait_closed()


def head(url: str, method: str, path: str, **headers: str) -> bytes:
    named = {"host": urlsplit(url).netloc, **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")


async def pour(url: str, begins: bytes, pieces: Iterable[bytes]) -> Answered:
    sent = 0
    async with dialled(url) as line:
        await line.send(begins)
        for piece in pieces:
            if not await line.send(piece):
                break
            sent += len(piece)
            # A sender answered early was refused, but continues as long as it can.
            await asyncio.sleep(0)
        try:
            status, body = await line.answer()
        except TimeoutError:
            status, body = -1, ""
        return Answered(status, body, sent)
