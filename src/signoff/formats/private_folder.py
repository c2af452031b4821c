"""Creates state directories readable only by their owner. They hold keys, arguments and decisions."""

from pathlib import Path
from typing import Final

PRIVATE_UMASK: Final = 0o077
"""The umask of programs that create files in such a directory."""


def make_private_folder(folder: Path) -> None:
    """Existing directories do not change. Raises `OSError`."""
    if folder.is_dir():
        return
    # Create them one by one: `mkdir(parents=True)` creates parents as open as the umask allows.
    if folder.parent != folder:
        make_private_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
