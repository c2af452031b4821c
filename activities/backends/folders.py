"""The backend of `fs_reach`: files of declared folders only.

The place of a path with all links resolved must be in a declared folder. The path is then opened from the root, folder
by folder, without following links. A link inserted in between is refused.
"""

import asyncio
import contextlib
import os
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from signoff.contracts.limits import MIB
from signoff.registry.capabilities import WRITABLE, Capabilities, CapabilityError

FILE_BYTES: Final = 8 * MIB
"""Maximum size of a file to read."""
_PATH_CHARS: Final = 200
# Without `O_PATH`, every parent folder must be readable as well.
_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
_CLOSED: Final = getattr(os, "O_CLOEXEC", 0)

T = TypeVar("T")


class Folders:
    """Resolves a folder's place once, at start: a later link in its place is refused."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}

    def problem(self, declared: Capabilities) -> str:
        """Return a sentence about a declared folder that this machine lacks, or ""."""
        lacking = next((each for each in declared.fs_reach if not os.path.isdir(self._place(each))), "")
        return f"the folder `{lacking}`, which is not on this machine: make it, or name another" if lacking else ""

    def resolve(self, declared: Capabilities, tenant: str) -> object:
        return _Reach({self._place(each): each.endswith(WRITABLE) for each in declared.fs_reach})

    def _place(self, entry: str) -> str:
        if entry not in self._places:
            self._places[entry] = os.path.realpath(entry.removesuffix(WRITABLE))
        return self._places[entry]


class _Reach:
    """The folders of one call, with their write permission."""

    def __init__(self, folders: dict[str, bool]) -> None:
        self._folders = folders

    async def read(self, path: str) -> bytes:
        return await asyncio.to_thread(self._reach, path, _read, False)

    async def write(self, path: str, content: bytes) -> None:
        await asyncio.to_thread(self._reach, path, lambda folder, name: _replace(folder, name, content), True)

    async def list(self, path: str) -> tuple[str, ...]:
        return await asyncio.to_thread(self._reach, path, _list, False)

    def _reach(self, path: str, act: Callable[[int, str], T], write: bool) -> T:
        if not isinstance(path, str) or "\0" in path or not os.path.isabs(path):
            raise _unreachable(path)
        try:
            place = os.path.realpath(path)
        except OSError:
            # A part of the path changed its type between two system calls.
            raise _unreachable(path) from None
        # A written file is inside a folder, and never replaces the folder itself.
        allowed = (each for each, writable in self._folders.items() if writable or not write)
        if not any(place.startswith(f"{each}/") or (place == each and not write) for each in allowed):
            raise _unreachable(path)
        parent, name = os.path.split(place)
        try:
            with _open_folder(parent) as folder:
                return act(folder, name or ".")
        except FileNotFoundError:
            raise FileNotFoundError(path[:_PATH_CHARS]) from None
        except OSError:
            # The path is a link, a device or another unexpected type, or permission is missing.
            raise _unreachable(path) from None


def _unreachable(path: object) -> CapabilityError:
    return CapabilityError("PATH_NOT_REACHABLE", str(path)[:_PATH_CHARS])


@contextmanager
def _open_folder(path: str) -> Iterator[int]:
    """Open from the root, without following links."""
    with contextlib.ExitStack() as opened:

        def keep(descriptor: int) -> int:
            opened.callback(os.close, descriptor)
            return descriptor

        folder = keep(os.open("/", _FOLDER | _CLOSED))
        for part in path.split("/"):
            if part:
                folder = keep(os.open(part, _FOLDER | _CLOSED, dir_fd=folder))
        yield folder


def _read(folder: int, name: str) -> bytes:
    # Open without blocking: a pipe instead of a file would block the reader without end.
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _NO_LINK | _CLOSED, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("no file")
        content = file.read(FILE_BYTES + 1)
    if len(content) > FILE_BYTES:
        raise CapabilityError("REPLY_TOO_LARGE", f"{name[:_PATH_CHARS]} has more than {FILE_BYTES} bytes")
    return content


def _list(folder: int, name: str) -> tuple[str, ...]:
    descriptor = os.open(name, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK | _CLOSED, dir_fd=folder)
    try:
        return tuple(sorted(os.listdir(descriptor)))
    finally:
        os.close(descriptor)


def _replace(folder: int, name: str, content: bytes) -> None:
    # Replace the whole file under its name: a link of that name is not followed, and no reader sees half a file.
    part = f".{uuid.uuid4().hex}.signoff-part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | _CLOSED
    descriptor = os.open(part, flags, 0o666, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)
        raise


def is_supported() -> bool:
    """Return whether this system opens files relative to a folder. Otherwise links could not be kept out."""
    return {os.open, os.unlink} <= os.supports_dir_fd and os.listdir in os.supports_fd and bool(_NO_LINK)
