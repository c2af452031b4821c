"""Installs a wheel into empty environments, one per Python, and plays a first hour there."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.release.artifacts import without_links

PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
"""The supported versions of Python."""
_INSTALL_SECONDS: Final = 900
_COMMAND_SECONDS: Final = 90
_GLANCE_SECONDS: Final = 0.2
_KEPT: Final = ("HOME", "LANG", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
_GATE: Final = """
import signoff_client
with signoff_client.Gate("http://127.0.0.1:9", patience=0).call("refund") as call:
    assert not call and call.state == "unreachable", call.text
"""
_FOUND: Final = "import sys; print(f'{sys.version_info[0]}.{sys.version_info[1]}')"


class TrialFault(Exception):
    """Explains in one sentence the failure in an empty environment."""


def find_pythons() -> dict[str, str]:
    """Search the search path and pyenv."""
    folders = [os.environ.get("PATH", ""), *map(str, sorted(Path.home().glob(".pyenv/versions/*/bin"), reverse=True))]
    found: dict[str, str] = {}
    for version in PYTHONS:
        for folder in folders:
            program = shutil.which(f"python{version}", path=folder)
            if program is not None and _version(program) == version:
                found[version] = program
                break
    return found


def try_installed(python: str, wheel: Path, scratch: Path, *, links: bool = True) -> None:
    """Without `links`, no links can be made in the environment. Raises `TrialFault`."""
    scratch.mkdir(parents=True)
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    refused: dict[str, str] = {} if links else without_links(scratch / "refusing")
    if links:
        _must((python, "-m", "venv", str(scratch / "env")), scratch, {}, _INSTALL_SECONDS)
        programs = scratch / "env/bin"
        _must((str(programs / "python"), *pip, f"{wheel}[dev]"), scratch, _pip_variables(), _INSTALL_SECONDS)
    else:
        # An environment contains a link; a directory does not.
        site = scratch / "site"
        variables = _pip_variables() | refused
        _must((python, *pip, "--target", str(site), f"{wheel}[dev]"), scratch, variables, _INSTALL_SECONDS)
        refused = {"PYTHONPATH": os.pathsep.join((refused["PYTHONPATH"], str(site)))}
        programs = site / "bin"
    play_first_hour(programs, scratch / "shop", refused)


def play_first_hour(programs: Path, folder: Path, variables: Mapping[str, str]) -> None:
    """Follow the README in an empty directory, from `signoff init` to an approval. Raises `TrialFault`."""
    folder.mkdir()
    here = dict(variables) | {"PATH": os.pathsep.join((str(programs), "/usr/bin", "/bin"))}

    def signoff(*arguments: str) -> str:
        return _must((str(programs / "signoff"), *arguments), folder, here, _COMMAND_SECONDS)

    signoff("init")
    signoff("manifest", "validate")
    with _dev(programs, folder, here):
        signoff("ask", "--no-wait", "give Ana 50 % off")
        code = _wait_for_code(signoff)
        signoff("approve", code, "--reason", "agreed by phone")
        deadline = time.monotonic() + _COMMAND_SECONDS
        while "complete" not in (turns := signoff("turns", "--json")):
            if time.monotonic() > deadline:
                raise TrialFault(f"the approved turn did not end: {turns}")
            time.sleep(_GLANCE_SECONDS)


def site_packages(programs: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(_must((str(programs / "python"), "-c", code), programs, {}, _COMMAND_SECONDS).strip())


def try_client(python: str, wheel: Path, scratch: Path) -> None:
    """Signoff is not installed there. Raises `TrialFault`."""
    scratch.mkdir(parents=True)
    _must((python, "-m", "venv", str(scratch / "env")), scratch, {}, _INSTALL_SECONDS)
    programs = scratch / "env/bin"
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    _must((str(programs / "python"), *pip), scratch, _pip_variables(), _INSTALL_SECONDS)
    _must((str(programs / "python"), "-c", _GATE), scratch, {}, _COMMAND_SECONDS)


def install(python: str, scratch: Path, wheel: Path, locks: Path) -> Path:
    """Make an environment like the image's. Return its programs' directory. Raises `TrialFault`."""
    builders, wheels, programs = scratch / "builders", scratch / "wheels", scratch / "env/bin"
    pip = ("-m", "pip", "--quiet", "--disable-pip-version-check")
    hashed = ("--require-hashes", "-r")

    def run(folder: Path, *words: str) -> None:
        _must((str(folder / "python"), *pip, *words), scratch, _pip_variables(), _INSTALL_SECONDS)

    scratch.mkdir(parents=True)
    for folder in (builders, scratch / "env"):
        _must((python, "-m", "venv", str(folder)), scratch, {}, _INSTALL_SECONDS)
    run(builders / "bin", "install", *hashed, str(locks / "build.txt"))
    made = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels))
    run(builders / "bin", *made, *hashed, str(locks / "image.txt"))
    run(programs, "install", "--no-deps", "--no-index", *map(str, sorted(wheels.iterdir())), str(wheel))
    return programs


@contextlib.contextmanager
def _dev(programs: Path, folder: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Stop `signoff dev` as Ctrl-C does."""
    ports = ("--port", str(_free_port()), "--temporal-port", str(_free_port()), "--no-ui")
    with (folder / "dev.log").open("w") as log:
        process = subprocess.Popen(
            (str(programs / "signoff"), "dev", *ports), cwd=folder, env=_environment(variables), stdout=log, stderr=log
        )
        try:
            deadline = time.monotonic() + _COMMAND_SECONDS
            while "Ctrl-C stops everything" not in (folder / "dev.log").read_text(encoding="utf-8"):
                if process.poll() is not None or time.monotonic() > deadline:
                    said = (folder / "dev.log").read_text(encoding="utf-8").strip()
                    raise TrialFault(f"`signoff dev` does not start: {said}")
                time.sleep(_GLANCE_SECONDS)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(_COMMAND_SECONDS)
    if code:
        raise TrialFault(f"`signoff dev` ended with exit code {code} after Ctrl-C")


def _wait_for_code(signoff: Callable[..., str]) -> str:
    deadline = time.monotonic() + _COMMAND_SECONDS
    while time.monotonic() < deadline:
        code = re.search(r'"code":\s*"([A-Z0-9]{6})"', signoff("inbox", "--json"))
        if code is not None:
            return code[1]
        time.sleep(_GLANCE_SECONDS)
    raise TrialFault("the inbox stayed empty")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _version(program: str) -> str:
    done = subprocess.run((program, "-c", _FOUND), capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Leave out almost all of this machine's variables, as a stranger's environment would."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | dict(variables)


def _pip_variables() -> dict[str, str]:
    """pip's package sources depend on the machine."""
    return {name: value for name, value in os.environ.items() if name.startswith("PIP_")} | {
        "PATH": os.environ.get("PATH", "")
    }


def _must(command: Sequence[str], folder: Path, variables: Mapping[str, str], seconds: float) -> str:
    done = subprocess.run(
        command, cwd=folder, env=_environment(variables), capture_output=True, text=True, timeout=seconds, check=False
    )
    if done.returncode:
        words = (done.stderr or done.stdout).strip()
        raise TrialFault(f"`{' '.join((Path(command[0]).name, *command[1:]))}` ends with {done.returncode}: {words}")
    return done.stdout
