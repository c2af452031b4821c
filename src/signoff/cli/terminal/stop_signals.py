"""Turns Ctrl-C and SIGTERM into an event: the first stops the process gracefully, the second at once."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_ONE_WISH_SECONDS: Final = 1.0
"""Signals within this time count as one: some programs signal both a process and its group."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Yield an event that the first signal sets. A later signal ends the process with exit code 1.

    Outside the main thread, the embedding program handles signals.
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
            # `sys.exit` would wait for the very tasks that hang.
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
    """Raises the error of a task in `running` that ends first."""
    waiting = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((waiting, *running), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    for task in running:
        if task.done():
            task.result()
