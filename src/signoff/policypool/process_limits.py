"""Limits of processes that read texts of strangers."""

import os
import resource
import sys
from pathlib import Path
from typing import Final

# No secrets: the process reads texts of strangers.
_ENVIRONMENT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
_ADDRESSES: Final = Path("/proc/self/statm")


def child_environment() -> dict[str, str]:
    """Return the environment of such a process."""
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    # Python's import path: a checkout may be only on this program's path.
    return environment | {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}


def limit_memory(most: int) -> None:
    """Limit later allocations to `most` bytes, and forbid core files: they would contain this process's data."""
    if used := _address_space():
        resource.setrlimit(resource.RLIMIT_AS, (used + most,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _address_space() -> int:
    """Return 0 if the system hides the size, in bytes.

    macOS hides it and has no such limit. Only the time and the sizes of the data are limited there.
    """
    if not _ADDRESSES.exists():
        return 0
    return int(_ADDRESSES.read_text().split()[0]) * resource.getpagesize()
