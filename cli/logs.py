"""Where the words of libraries go: warnings in one line to the terminal, everything to a file."""

import logging
import os
import sys
from pathlib import Path
from typing import Final

LOG_NAME: Final = "signoff.log"


class _OneLine(logging.Formatter):
    """No traceback reaches a terminal; the file has it."""

    def format(self, record: logging.LogRecord) -> str:
        first = record.getMessage().partition("\n")[0]
        return f"{record.levelname.lower()}: {first[:300]}"


def log_to(state_dir: Path, *, name: str = LOG_NAME) -> Path:
    """Set up logging for a process that serves; returns the file, of which the previous run's is kept as `.old`."""
    path = state_dir / name
    if path.exists():
        path.replace(path.with_name(f"{name}.old"))
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    file = logging.FileHandler(path, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    terminal = logging.StreamHandler(sys.stderr)
    terminal.setLevel(logging.WARNING)
    terminal.setFormatter(_OneLine())
    logging.basicConfig(level=logging.INFO, handlers=[file, terminal], force=True)
    return path
