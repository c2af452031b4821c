"""Environments for packages whose pins exclude ours: created once by the test run and kept."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

FOLDER = Path(sys.prefix) / "environments"


def environment(name: str, pins: Path) -> Path:
    text = pins.read_text(encoding="utf-8")
    made = f"{text}\n{sys.version}"
    folder = FOLDER / f"{name}-{hashlib.sha256(made.encode()).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        # One of several processes creates it, and the others reuse it.
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


def installed_wheel(name: str, wheel: Path, extra: str, constraints: Path) -> Path:
    with zipfile.ZipFile(wheel) as files:
        (described,) = (files.read(each) for each in files.namelist() if each.endswith(".dist-info/METADATA"))
    made = described.partition(b"\n\n")[0] + constraints.read_bytes() + sys.version.encode()
    folder = FOLDER / f"{name}-{hashlib.sha256(made).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pip = (
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--disable-pip-version-check",
        )
        if not (folder / "whole").exists():
            for old in FOLDER.glob(f"{name}-*"):
                shutil.rmtree(old)
            _run(sys.executable, "-m", "venv", "--without-pip", str(folder))
            _run(*pip, "-c", str(constraints), f"{wheel}[{extra}]")
            (folder / "whole").touch()
        _run(*pip, "--no-deps", "--force-reinstall", str(wheel))
    return python
