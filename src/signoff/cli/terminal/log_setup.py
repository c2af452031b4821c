"""Routes log records: one-line warnings to the terminal and everything to a file, or everything as JSON."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from signoff.telemetry.json_log import RECORD_LOGGER, JsonFormat

LOG_NAME: Final = "signoff.log"
_TELL_ADDRESSES: Final = ("httpx2", "httpcore2")
"""Loggers that log the whole address of each call. The addresses of some vendors contain a token."""


class _OneLine(logging.Formatter):
    """Keeps tracebacks off the terminal; the file has them."""

    def format(self, record: logging.LogRecord) -> str:
        first = record.getMessage().partition("\n")[0]
        return f"{record.levelname.lower()}: {_escape(first)[:300]}"


class _Whole(logging.Formatter):
    """Writes one line per record, with an indented traceback below, so that neither can forge an entry."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        record.message = _escape(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        # A traceback ends with the error's message, which may repeat a stranger's input.
        first, *below = super().format(record).splitlines()
        return "\n".join((first, *(f"  {_escape(line)}" for line in below)))


def _escape(message: str) -> str:
    # A line end in an address or header would forge the next entry; an escape sequence would control the terminal.
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in message)


@contextmanager
def process_log(state_dir: Path, name: str = LOG_NAME, *, as_json: bool = False) -> Iterator[None]:
    """Log everything to a file and warnings to the terminal. With `as_json`, log to the terminal alone."""
    with _log_as_json() if as_json else log_to_file(state_dir, name):
        yield


@contextmanager
def _log_as_json() -> Iterator[None]:
    terminal = logging.StreamHandler(sys.stderr)
    terminal.setFormatter(JsonFormat())
    root, entries = logging.getLogger(), logging.getLogger(RECORD_LOGGER)
    quiet = [logging.getLogger(each) for each in _TELL_ADDRESSES]
    levels = [(log, log.level) for log in (root, entries, *quiet)]
    root.setLevel(logging.INFO)
    entries.setLevel(logging.INFO)
    for log in quiet:
        log.setLevel(logging.WARNING)
    root.addHandler(terminal)
    try:
        yield
    finally:
        root.removeHandler(terminal)
        for log, level in levels:
            log.setLevel(level)


@contextmanager
def log_to_file(state_dir: Path, name: str = LOG_NAME) -> Iterator[Path]:
    """Keep the previous file as `.old`."""
    path = state_dir / name
    if path.exists():
        path.replace(path.with_name(f"{name}.old"))
    # Create the file before the handler does: the umask would decide its permissions.
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    file = logging.FileHandler(path, encoding="utf-8")
    file.setFormatter(_Whole("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    terminal = logging.StreamHandler(sys.stderr)
    terminal.setLevel(logging.WARNING)
    terminal.setFormatter(_OneLine())
    root, ours = logging.getLogger(), logging.getLogger("signoff")
    quiet = [logging.getLogger(each) for each in _TELL_ADDRESSES]
    levels = [(log, log.level) for log in (root, ours, *quiet)]
    root.setLevel(logging.INFO)
    for log in quiet:
        log.setLevel(logging.WARNING)
    # Tracebacks of unexpected errors go to the file alone, which only its owner can read.
    ours.setLevel(logging.DEBUG)
    root.addHandler(file)
    root.addHandler(terminal)
    try:
        yield path
    finally:
        root.removeHandler(terminal)
        root.removeHandler(file)
        for log, level in levels:
            log.setLevel(level)
        file.close()
