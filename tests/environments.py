"""Environments of their own for packages whose pins exclude ours: made by the test run, once, and kept beside ours."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(sys.prefix) / "environments"


def environment(name: str, pins: Path) -> Path:
    """The Python of an environment with exactly the packages that a file of pins names."""
    text = pins.read_text(encoding="utf-8")
    made = f"{text}\n{sys.version}"
    folder = FOLDER / f"{name}-{hashlib.sha256(made.encode()).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        # Of several processes one makes it, and the others find it made.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "whole").exists():
            for old in FOLDER.glob(f"{name}-*"):
                shutil.rmtree(old)
            _run(sys.executable, "-m", "venv", "--without-pip", str(folder))
            pip = (sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--quiet")
            _run(*pip, "--disable-pip-version-check", "-r", str(pins))
            (folder / "whole").touch()
    return python


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
