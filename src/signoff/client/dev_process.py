"""Describes the `signoff dev` of a directory for programs in other terminals."""

import os
from pathlib import Path

from pydantic import ValidationError

from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.names import RUNNING_FILE


class DevProcess(FrozenModel):
    """One running `signoff dev`, as stored in a file for programs in other terminals of the same directory."""

    pid: int
    """Its process id. A file without a running process is ignored."""
    address: str
    """Temporal's server, `host:port`."""
    namespace: str
    task_queue: str
    manifest: str
    """The manifest's absolute path."""
    app: str = ""
    """The program, `MODULE:APP`, instead of a manifest."""
    folder: str = ""
    """The directory of the program's module."""
    url: str
    """The address of its gateway."""


def read_running(state_dir: Path) -> DevProcess | None:
    """Return `None` if the process that left the description no longer runs."""
    try:
        running = DevProcess.model_validate_json((state_dir / RUNNING_FILE).read_bytes())
        # Signal 0 only checks the process: a killed process leaves its file behind.
        os.kill(running.pid, 0)
    except (OSError, ValidationError):
        return None
    return running
