"""Where the words of libraries go: warnings in one line to the terminal, everything to a file; or all as JSON."""

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
"""Loggers that tell of each call, with the whole address; those of some vendors hold a token."""


class _OneLine(logging.Formatter):
    """No traceback reaches a terminal; the file has it."""

    def format(self, record: logging.LogRecord) -> str:
        first = record.getMessage().partition("\n")[0]
        return f"{record.levelname.lower()}: {_escape(first)[:300]}"


class _Whole(logging.Formatter):
    """A line for each record, and a traceback below it, indented: nothing that either carries begins an entry."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        record.message = _escape(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        # A traceback ends in the error's own words, and those may repeat what a stranger sent.
        first, *below = super().format(record).splitlines()
        return "\n".join((first, *(f"  {_escape(line)}" for line in below)))


def _escape(message: str) -> str:
    # A line end in an address or a header would forge the next entry, an escape sequence the terminal around it.
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in message)


@contextmanager
def process_log(state_dir: Path, name: str = LOG_NAME, *, as_json: bool = False) -> Iterator[None]:
    """Sends the logging of a process that serves to a file and its warnings to the terminal, or all of it `as_json` to
    the terminal alone, where a collector of logs takes it.
    """
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
    """Sends the logging of a process that serves to a file, within a block; the previous file is kept as `.old`."""
    path = state_dir / name
    if path.exists():
        path.replace(path.with_name(f"{name}.old"))
    # Made before the handler opens it, which would leave it to the umask who may read it.
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
    # Tracebacks of unexpected errors: in the file, which is its owner's alone, and nowhere else.
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
