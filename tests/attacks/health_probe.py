"""Asks a gateway for its health again and again, in a process of its own, and says how long each answer took.

`health_probe.py URL`; ends with its standard input, then prints the seconds as JSON. Between two such questions it asks
a server that does nothing, in one more process: how long that takes says how busy the machine is by itself.
"""

import asyncio
import contextlib
import http.client
import http.server
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

FLOOR_SECONDS = 1.0
"""Within which health is answered, whatever strangers do."""
RATIO = 5.0
"""A machine that is slow by itself is given so many times what a server takes on it that does nothing, on top."""
_BETWEEN_SECONDS = 0.02
_IDLE = "--idle"


@dataclass
class Answers:
    health: list[float] = field(default_factory=list)
    """Those of the gateway."""
    idle: list[float] = field(default_factory=list)
    """Those of the server that does nothing."""

    @property
    def in_time(self) -> bool:
        """Whether the gateway's answers came in time, by what the machine takes without it.

        One may be late: a busy machine lets one process stand still for a moment, and not the other. What holds up a
        gateway does so whenever it comes, and every load brings it several times.
        """
        assert self.health
        return sum(each > FLOOR_SECONDS + RATIO * max(self.idle) for each in self.health) <= 1

    def __str__(self) -> str:
        return f"health within {max(self.health):.2f} s, a server that does nothing within {max(self.idle):.2f} s"


@contextlib.asynccontextmanager
async def probed(url: str) -> AsyncIterator[Answers]:
    """The answers during the block; they are filled in at its end."""
    found = Answers()
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, url, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    # No module of the tests: this file runs as a program too.
    assert process.stdout is not None
    assert await process.stdout.readline() == b"begun\n"
    try:
        yield found
    finally:
        # Empty input closes it; None would leave it open.
        out, _ = await process.communicate(b"")
    found.health, found.idle = json.loads(out)


class _Idle(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *words: object) -> None:
        pass


def _serve_idle() -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), _Idle)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


def _asked(host: str, port: int | None) -> float:
    begun = time.monotonic()
    # A connection for each: what is kept open would not be kept out by a limit of connections.
    connection = http.client.HTTPConnection(host, port, timeout=60)
    connection.request("GET", "/healthz")
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 200, answer.status
    return time.monotonic() - begun


def _probe(url: str) -> None:
    parts = urlsplit(url)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    health: list[float] = []
    idle: list[float] = []
    command = (sys.executable, __file__, _IDLE)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = int(server.stdout.readline())
        while not ended.wait(_BETWEEN_SECONDS):
            health.append(_asked(parts.hostname or "", parts.port))
            idle.append(_asked("127.0.0.1", port))
            if len(health) == 1:
                print("begun", flush=True)
        server.stdin.close()
    print(json.dumps([health, idle]), flush=True)


if __name__ == "__main__":
    _serve_idle() if sys.argv[1] == _IDLE else _probe(sys.argv[1])
