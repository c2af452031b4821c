"""Makes folders of state that their owner alone may read: they hold keys, arguments and answers."""

from pathlib import Path
from typing import Final

PRIVATE_UMASK: Final = 0o077
"""With which programs are started that make files in such a folder themselves."""


def make_private_folder(folder: Path) -> None:
    """Makes a folder, and those above it that are missing, for its owner alone; one that is there stays as it is.

    Raises `OSError`.
    """
    if folder.is_dir():
        return
    # One by one: `mkdir(parents=True)` makes those above it as open as the umask allows.
    if folder.parent != folder:
        make_private_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
