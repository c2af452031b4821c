"""Ctrl-C and SIGTERM as an event: the first asks to stop in good order, the second ends at once."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_ONE_WISH_SECONDS: Final = 1.0
"""Signals that come together are one wish: some programs send theirs to a process and to its group."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Yields an event that is set by the first signal; a later one ends the process with exit code 1.

    Outside the main thread signals are left to the program that runs us.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    first = 0.0

    def request_stop() -> None:
        nonlocal first
        if not stop.is_set():
            first = loop.time()
            stop.set()
        elif loop.time() - first > _ONE_WISH_SECONDS:
            print("signoff: stopped at once", file=sys.stderr, flush=True)
            # Not `sys.exit`, which would wait for the very tasks that do not end.
            os._exit(1)

    ours = _SIGNALS if threading.current_thread() is threading.main_thread() else ()
    for each in ours:
        loop.add_signal_handler(each, request_stop)
    try:
        yield stop
    finally:
        for each in ours:
            loop.remove_signal_handler(each)


async def until_stopped(stop: asyncio.Event, *running: asyncio.Task[None]) -> None:
    """Waits until `stop` is set or one of `running` ends; raises what it ended with."""
    waiting = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((waiting, *running), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    for task in running:
        if task.done():
            task.result()
