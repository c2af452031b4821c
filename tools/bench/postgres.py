"""A PostgreSQL server of one run, for benchmarks and tests."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from signoff.temporal.embedded_server import free_port


def _programs() -> Path:
    """Debian keeps them off PATH."""
    found = [
        *sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")),
        *map(Path, filter(None, [shutil.which("initdb")])),
    ]
    if not found:
        raise FileNotFoundError("PostgreSQL's programs are missing: install the package `postgresql`")
    return found[-1].parent


def _unprivileged() -> str | None:
    """PostgreSQL refuses to run as root: return another user for it."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


@contextlib.contextmanager
def running_postgres(superuser: str, password: str = "") -> Iterator[str]:
    """Yields `host:port`. Without a password the server admits all clients."""
    programs, user, port = _programs(), _unprivileged(), free_port()
    folder = Path(tempfile.mkdtemp(prefix="signoff-pg-"))
    (folder / "password").write_text(password)
    if user is not None:
        for each in (folder, folder / "password"):
            shutil.chown(each, user)
    data = folder / "data"
    entrance = ["-A", "scram-sha-256", "--pwfile", str(folder / "password")] if password else ["-A", "trust"]

    def run(*command: str) -> None:
        subprocess.run(command, user=user, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=60)

    run(f"{programs}/initdb", "-D", str(data), "-U", superuser, *entrance, "-E", "UTF8", "--locale=C", "--no-sync")
    options = f"-p {port} -h 127.0.0.1 -k {folder} -F"
    run(f"{programs}/pg_ctl", "-D", str(data), "-l", str(folder / "log"), "-o", options, "-w", "start")
    try:
        yield f"127.0.0.1:{port}"
    finally:
        run(f"{programs}/pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder, ignore_errors=True)
