"""Describes the `signoff dev` that runs in a folder, for programs in other terminals."""

import os
from pathlib import Path

from pydantic import ValidationError

from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.names import RUNNING_FILE


class DevProcess(FrozenModel):
    """Describes one running `signoff dev` in a file that programs in other terminals of the same folder read."""

    pid: int
    """Its process; a file whose process is gone counts for nothing."""
    address: str
    """Temporal's server, `host:port`."""
    namespace: str
    task_queue: str
    manifest: str
    """The manifest's absolute path."""
    app: str = ""
    """The program, `MODULE:APP`, in the place of a manifest."""
    folder: str = ""
    """The folder in which the program's module is."""
    url: str
    """Its gateway."""


def read_running(state_dir: Path) -> DevProcess | None:
    """Reads what `signoff dev` left word of in the state folder, if its process is still there."""
    try:
        running = DevProcess.model_validate_json((state_dir / RUNNING_FILE).read_bytes())
        # Signal 0 only asks whether the process is there: one that was killed leaves its file behind.
        os.kill(running.pid, 0)
    except (OSError, ValidationError):
        return None
    return running
