"""Asks a gateway for its health repeatedly from a separate process and measures each answer.

`health_probe.py URL` runs until its standard input ends, then prints the seconds as JSON. In between it measures a
reference server in one more process: the speed and load of the machine.
"""

import asyncio
import contextlib
import http.client
import http.server
import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

FLOOR_SECONDS = 1.0
"""The longest answer of health on an idle machine."""
RATIO = 5.0
"""The allowance for a slow machine, in answers of the reference server."""
_BETWEEN_SECONDS = 0.02
_REFERENCE_EVERY = 5
_REFERENCE_STEPS = 150_000
"""About 20 ms on an idle machine."""
_REFERENCE = "--reference"


@dataclass
class Answers:
    health: list[float] = field(default_factory=list)
    """Seconds of each answer of the gateway."""
    reference: list[float] = field(default_factory=list)
    """Seconds of each answer of the reference server."""

    @property
    def in_time(self) -> bool:
        """Return whether the gateway answered in time for this machine.

        One answer may be late: a busy machine can pause one process and not the other. A blocking request blocks the
        gateway each time, and every test sends several.
        """
        assert self.health
        return sum(each > FLOOR_SECONDS + RATIO * max(self.reference) for each in self.health) <= 1

    def __str__(self) -> str:
        return f"health within {max(self.health):.2f} s, the reference server within {max(self.reference):.2f} s"


@contextlib.asynccontextmanager
async def probed(url: str) -> AsyncIterator[Answers]:
    """The answers are filled in at the end of the block."""
    found = Answers()
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, url, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    # Import nothing from the tests: this file is also a program.
    assert process.stdout is not None
    assert await process.stdout.readline() == b"begun\n"
    try:
        yield found
    finally:
        # Empty input closes it; `None` would leave it open.
        out, _ = await process.communicate(b"")
    found.health, found.reference = json.loads(out)


class _Reference(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        sum(math.sqrt(step) for step in range(_REFERENCE_STEPS))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *words: object) -> None:
        pass


def _serve_reference() -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), _Reference)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


def _asked(host: str, port: int | None) -> float:
    begun = time.monotonic()
    # Open a new connection for each request, so that a limit of connections is noticed.
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
    reference: list[float] = []
    command = (sys.executable, __file__, _REFERENCE)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = int(server.stdout.readline())
        while not ended.wait(_BETWEEN_SECONDS):
            health.append(_asked(parts.hostname or "", parts.port))
            if len(health) % _REFERENCE_EVERY == 1:
                reference.append(_asked("127.0.0.1", port))
            if len(health) == 1:
                print("begun", flush=True)
        server.stdin.close()
    print(json.dumps([health, reference]), flush=True)


if __name__ == "__main__":
    _serve_reference() if sys.argv[1] == _REFERENCE else _probe(sys.argv[1])
