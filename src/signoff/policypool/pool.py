"""Evaluates costly policy expressions in processes with limits of memory and time.

The first such expression starts the first process, and up to `POLICY_PROCESSES` are kept. A process that exceeds its
time or memory is killed and replaced. Its expression is then an error, which asks or denies.
"""

import asyncio
import contextlib
import json
import queue
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

from signoff.contracts.limits import (
    KIB,
    POLICY_PROCESS_SECONDS,
    POLICY_PROCESS_START_SECONDS,
    POLICY_PROCESSES,
    POLICY_WAIT_SECONDS,
)
from signoff.policy.answer import EngineOutcome
from signoff.policy.bounded_expression import (
    BoundedTask,
    NoEvaluator,
    current_evaluator,
    failed_outcomes,
    set_evaluator,
)
from signoff.policypool.process import READY, receive, send
from signoff.policypool.process_limits import child_environment

T = TypeVar("T")
P = ParamSpec("P")

_REPLY_BYTES: Final = 256 * KIB
_NOTE_CHARS: Final = 200
_KINDS: Final = ("true", "false", "error", "other")


class PolicyPool:
    """Evaluates expressions from any thread.

    Blocks for at most `POLICY_WAIT_SECONDS` and `POLICY_PROCESS_SECONDS`, plus the start of a process, once.
    """

    def __init__(self, size: int = POLICY_PROCESSES) -> None:
        # Last in, first out: a recently used process is warm, and a second one starts only if two are needed at once.
        self._places: queue.LifoQueue[_Process | None] = queue.LifoQueue()
        self._started: list[_Process] = []
        for _ in range(size):
            self._places.put(None)
        self._end = weakref.finalize(self, _end, self._started)

    def evaluate(self, task: BoundedTask) -> tuple[EngineOutcome, EngineOutcome]:
        try:
            process = self._places.get(timeout=POLICY_WAIT_SECONDS)
        except queue.Empty:
            return failed_outcomes("all processes that could evaluate it are busy")
        try:
            if process is None:
                process = _Process()
                self._started.append(process)
            return process.evaluate(task)
        except Exception as error:
            # After any error the process may still be busy, or answer the next task with this one's result.
            if process is not None:
                self._started.remove(process)
                process.end()
                process = None
            return failed_outcomes(_why(error))
        finally:
            self._places.put(process)

    def close(self) -> None:
        self._end()


class _Process:
    """All methods except `end` raise `OSError` (including `TimeoutError`) or `ValueError`."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", "signoff.policypool.process", str(theirs.fileno())]
            self._child = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(),),
                env=child_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        self._peer = ours
        try:
            if self._receive(POLICY_PROCESS_START_SECONDS) != READY:
                raise ConnectionError("it did not start")
        except BaseException:
            self.end()
            raise

    def evaluate(self, task: BoundedTask) -> tuple[EngineOutcome, EngineOutcome]:
        request = {"text": task.text, "variables": task.variables, "data": task.data}
        self._peer.settimeout(POLICY_PROCESS_SECONDS)
        send(self._peer, json.dumps(request).encode())
        first, second = json.loads(self._receive(POLICY_PROCESS_SECONDS))
        return _outcome(first), _outcome(second)

    def end(self) -> None:
        self._peer.close()
        self._child.kill()
        self._child.wait()

    def _receive(self, seconds: float) -> bytes:
        body = receive(self._peer, _REPLY_BYTES, time.monotonic() + seconds)
        if not body:
            raise ConnectionError("it ended")
        return body


def install() -> None:
    """Idempotent."""
    if isinstance(current_evaluator(), NoEvaluator):
        set_evaluator(PolicyPool())


async def ask_rules(may_block: bool, function: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Use a thread if one of the rules may wait for a process."""
    # Use a thread only then: an ordinary rule takes microseconds, less than starting a thread.
    if not may_block:
        return function(*given, **named)
    return await asyncio.to_thread(function, *given, **named)


def _end(processes: list[_Process]) -> None:
    for process in processes:
        with contextlib.suppress(Exception):
            process.end()
    processes.clear()


def _outcome(data: Any) -> EngineOutcome:
    """Raise `ValueError` or `TypeError` for anything else than a result."""
    kind, note, value = data["kind"], str(data["note"])[:_NOTE_CHARS], data["value"]
    if kind not in _KINDS or not (value is None or isinstance(value, list)):
        raise ValueError("no outcome")
    return EngineOutcome(kind, note, value)


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"it took more than {POLICY_PROCESS_SECONDS:g} s"
    if isinstance(error, ConnectionError):
        return "the process that evaluated it ended: it took more memory or time than it may"
    return f"the process that evaluates it failed ({type(error).__name__})"
