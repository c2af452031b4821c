"""Evaluates policy expressions within limits of memory and time, in a process of the policy pool.

It reads tasks from the socket whose descriptor is its only argument, and answers each. Messages are JSON after a length
of four bytes: an attacker who takes over an engine can inject no objects into the calling program.
"""

import json
import math
import resource
import socket
import struct
import sys
import time
from functools import lru_cache
from typing import Any, Final

from signoff.contracts.limits import POLICY_PROCESS_BYTES, POLICY_PROCESS_SECONDS
from signoff.policy.answer import EngineOutcome
from signoff.policy.expression import Expression, facts
from signoff.policy.first_engine import first_program
from signoff.policy.second_engine import second_program
from signoff.policypool.process_limits import limit_memory

HEADER: Final = struct.Struct(">I")
READY: Final = b"ready"
_FIRST: Final = '{"text": "args.n < 1", "variables": ["args"], "data": {"args": {"n": 0}}}'
_LEAST_SECONDS: Final = 0.001


def main(descriptor: int) -> None:
    """Answer tasks until the other end closes the socket."""
    with socket.socket(fileno=descriptor) as peer:
        # The first expression loads the engines and their dependencies. Limit memory after that.
        answer(_FIRST)
        limit_memory(POLICY_PROCESS_BYTES)
        send(peer, READY)
        while task := receive(peer):
            limit_time()
            send(peer, answer(task))


def answer(task: str | bytes) -> bytes:
    request: dict[str, Any] = json.loads(task)
    expression = _expression(request["text"], tuple(request["variables"]))
    return json.dumps([_plain(each) for each in expression.evaluate_here(facts(request["data"]))]).encode()


def limit_time() -> None:
    """Limit the processor time of the next task. The system kills the process if the task takes longer."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = math.ceil(used.ru_utime + used.ru_stime + POLICY_PROCESS_SECONDS)
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def send(peer: socket.socket, body: bytes) -> None:
    peer.sendall(HEADER.pack(len(body)) + body)


def receive(peer: socket.socket, most: int = 1 << 31, until: float | None = None) -> bytes:
    """Return b"" if the other end is closed.

    Raises `ValueError` for a message of more than `most` bytes, and `TimeoutError` if it is incomplete at the time
    `until` of the monotonic clock.
    """
    header = _read(peer, HEADER.size, until)
    size = HEADER.unpack(header)[0] if header else 0
    if size > most:
        raise ValueError(f"a message of {size} bytes")
    return _read(peer, size, until)


def _read(peer: socket.socket, size: int, until: float | None) -> bytes:
    pieces = bytearray()
    while len(pieces) < size:
        if until is not None:
            # Set it for each piece: a timeout of the socket restarts with every piece and would never expire.
            peer.settimeout(max(until - time.monotonic(), _LEAST_SECONDS))
        piece = peer.recv(size - len(pieces))
        if not piece:
            return b""
        if until is not None and time.monotonic() > until:
            raise TimeoutError
        pieces += piece
    return bytes(pieces)


@lru_cache(maxsize=256)
def _expression(text: str, variables: tuple[str, ...]) -> Expression:
    return Expression("", text, first_program(text, variables), second_program(text))


def _plain(outcome: EngineOutcome) -> dict[str, Any]:
    # The only values ever read are lists of texts, by `route_to`.
    value = outcome.value
    texts = value if isinstance(value, list) and all(isinstance(each, str) for each in value) else None
    return {"kind": outcome.kind, "note": outcome.note, "value": texts}


if __name__ == "__main__":
    main(int(sys.argv[1]))
