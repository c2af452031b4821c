"""Renders an error for users: one sentence, never a traceback."""

import os
import tempfile
import traceback
from pathlib import Path
from typing import Final

from signoff.contracts.clock import system_clock
from signoff.contracts.errors import SignoffError
from signoff.contracts.names import DEFAULT_STATE_DIR
from signoff.formats.private_folder import make_private_folder

LOG_NAME: Final = "errors.log"


def sentence(error: BaseException) -> str:
    """For an unexpected error, the message names the file with the traceback."""
    known = _find_known(error)
    if known is not None:
        return known.message
    where = _write_down(error)
    return f"something unexpected went wrong ({type(error).__name__}); the details are in `{where}`"


def _find_known(error: BaseException) -> SignoffError | None:
    """Search a group, too."""
    if isinstance(error, SignoffError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_find_known, error.exceptions)), None)
    return None


def _write_down(error: BaseException) -> Path:
    text = f"--- {system_clock().isoformat(timespec='seconds')}\n{''.join(traceback.format_exception(error))}\n"
    try:
        path = _state_dir() / LOG_NAME
        make_private_folder(path.parent)
        _append(path, text)
    except OSError:
        path = Path(tempfile.gettempdir()) / f"signoff-{os.getuid()}-{LOG_NAME}"
        _append(path, text)
    return path


def _append(path: Path, text: str) -> None:
    # Tracebacks can contain arguments, hence mode 0600. `O_NOFOLLOW`: in a world-writable directory, a symlink at this
    # name would redirect the write.
    with open(
        os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW, 0o600), "a", encoding="utf-8"
    ) as file:
        file.write(text)


def _state_dir() -> Path:
    # Imported here: without a command, neither contracts nor settings are loaded.
    from signoff.client.address import find_state_dir  # noqa: PLC0415

    try:
        return find_state_dir()
    except SignoffError:
        return Path(DEFAULT_STATE_DIR)
